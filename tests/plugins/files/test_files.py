"""list_files, read_file, search_text and read_output on an honest workspace."""

import os
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import InvalidArguments, ToolError
from checkrein.messages import content_text
from checkrein.output import cap
from checkrein.tools import ToolContext
from checkrein_files import Plugin, reading


@pytest.fixture
def tree(tools: Any) -> Any:
    root: Path = tools.root
    (root / "src").mkdir()
    (root / "src/deep").mkdir()
    (root / ".git").mkdir()
    (root / ".checkrein").mkdir()
    (root / ".git/config").write_text("secret needle")
    (root / "README.md").write_text("# Title\n\nneedle here\n")
    (root / "src/main.py").write_text("print('Needle')\n" * 3)
    (root / "src/deep/big.txt").write_bytes(b"x" * 5_000 + b"\n")
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00needle")
    (root / "empty").write_bytes(b"")
    return tools


def test_tools_are_read_only_sync_and_described(tools: Any) -> None:
    assert sorted(tools.by_name) == ["list_files", "read_file", "read_output", "search_text"]
    for tool in tools.by_name.values():
        assert (tool.effect, tool.is_async) == ("read_only", False) and tool.timeout_s
        assert all("description" in prop for prop in tool.parameters["properties"].values()), tool.name
        assert "context" not in tool.parameters["properties"]


def test_list(tree: Any) -> None:
    assert tree("list_files").splitlines() == [
        ".: 3 files, 1 folder, 36 bytes in files",
        "        21  README.md",
        "         0  empty",
        "        15  image.png",
        "    folder  src/",
    ]
    assert ".git" not in tree("list_files", recursive=True) and "config" not in tree("list_files", recursive=True)
    assert [line.split()[-1] for line in tree("list_files", recursive=True, sort="size").splitlines()[1:4]] == [
        "src/deep/big.txt",
        "src/main.py",
        "README.md",
    ]
    assert "      5001  big.txt" in tree("list_files", path="src/deep")
    assert tree("list_files", path=str(tree.root / "src")).startswith("src: 1 file, 1 folder")
    value = tree.outcome("list_files", recursive=True).value
    assert value["path"] == "." and tree.outcome("list_files", path="src/deep").value["path"] == "src/deep"
    assert value["complete"] and {"path": "src/main.py", "kind": "file", "size": 48} in value["entries"]


def test_list_is_bounded_and_says_what_is_missing(tools: Any) -> None:
    for n in range(30):
        (tools.root / f"file{n:02}").write_bytes(b"x" * n)
    text = tools("list_files", limit=5, sort="size")
    assert "30 files" in text and "[25 more entries are not shown" in text
    assert [line.split()[0] for line in text.splitlines()[1:6]] == ["29", "28", "27", "26", "25"]
    assert tools.outcome("list_files", limit=5).value["complete"] is False
    (tools.root / "long").mkdir()
    for n in range(500):
        (tools.root / "long" / (f"{n:03}" + "n" * 200)).touch()
    assert len(tools("list_files", path="long", limit=2_000).encode()) < 50_000
    assert "(empty)" in in_folder(tools, "nothing")("list_files")


def in_folder(tools: Any, name: str) -> Any:
    (tools.root / name).mkdir()
    return type(tools)(tools.root / name)


def test_list_stops_when_the_time_is_up_or_nobody_waits(tree: Any) -> None:
    short = type(tree)(tree.root, Plugin.Config(max_seconds=1e-9))
    assert "[not complete: the time was up]" in short("list_files", recursive=True)
    assert "[not complete: the time was up]" in short("search_text", text="needle")
    tree.context.give_up()
    assert "[not complete" in tree("list_files", recursive=True)


def test_read_pages(tools: Any) -> None:
    (tools.root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    assert tools("read_file", path="a.txt", limit=2).splitlines() == [
        "a.txt: lines 1 to 2 of 100 lines, 792 bytes",
        "line 1",
        "line 2",
        "[go on with offset=3]",
    ]
    text = tools("read_file", path="a.txt", offset=100)
    assert text == "a.txt: lines 100 to 100 of 100 lines, 792 bytes\nline 100\n"
    with pytest.raises(ToolError, match="100 lines"):
        tools("read_file", path="a.txt", offset=101)
    for bad in ({"offset": 0}, {"limit": 0}, {"limit": 10**9}):
        with pytest.raises(InvalidArguments):
            tools("read_file", path="a.txt", **bad)
    collected, offset = [], 1
    while True:
        page = tools("read_file", path="a.txt", offset=offset, limit=7).splitlines()
        collected += [line for line in page[1:] if line.startswith("line")]
        if not page[-1].startswith("[go on"):
            break
        offset = int(page[-1].split("=")[1].rstrip("]"))
    assert collected == [f"line {n}" for n in range(1, 101)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "f: empty, 0 bytes"),
        (b"no end", "f: lines 1 to 1 of 1 lines, 6 bytes\nno end\n"),
        (b"a\r\nb\r\n", "f: lines 1 to 2 of 2 lines, 6 bytes\na\nb\n"),
        (b"\xef\xbb\xbfbom\n", "f: lines 1 to 1 of 1 lines, 7 bytes\nbom\n"),
        (b"caf\xe9\n", "f: lines 1 to 1 of 1 lines, 5 bytes\ncaf\ufffd\n"),
        (b"\x89PNG\r\n\x1a\n\0\0", "f: PNG image, 10 bytes, not shown"),
        (b"ab\0cd", "f: binary data, 5 bytes, not shown"),
        ("text".encode("utf-16"), "f: UTF-16 text, 10 bytes, not shown"),
    ],
)
def test_X5_read_describes_what_is_no_text(tools: Any, data: bytes, expected: str) -> None:
    (tools.root / "f").write_bytes(data)
    assert tools("read_file", path="f") == expected


def test_X5_read_is_bounded(tools: Any) -> None:
    (tools.root / "long").write_bytes(b"x" * 3_000_000 + b"\nsecond\n")
    text = tools("read_file", path="long")
    assert "lines 1 to 2 of 2" in text and "second" in text and "more characters" in text and len(text) < 5_000
    (tools.root / "many").write_text(("y" * 99 + "\n") * 5_000)
    text = tools("read_file", path="many", limit=5_000)
    assert len(text.encode()) < 50_000 and "of 5000 lines" in text and "[go on with offset=" in text


def test_X5_one_endless_line_is_read_within_the_bounds(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_SCANNED_BYTES", 3_000_000)
    (tools.root / "f").write_bytes(b"first\n" + b"x" * 20_000_000 + b"\nlast\n")
    text = tools("read_file", path="f")
    assert text.startswith("f: lines 1 to 2 of at least 2 lines") and "last" not in text
    with pytest.raises(ToolError, match="too large: it was read to line 2, short of offset 3"):
        tools("read_file", path="f", offset=3)
    short = type(tools)(tools.root, Plugin.Config(max_seconds=1e-9))
    monkeypatch.undo()
    assert "of at least 2 lines" in short("read_file", path="f")


def test_search(tree: Any) -> None:
    assert tree("search_text", text="needle").splitlines() == [
        "1 matching lines in 1 files; 4 files searched",
        "README.md:3: needle here",
        "[not searched: 1 files that are no text]",
    ]
    assert "src/main.py:2: print('Needle')" in tree("search_text", text="NEEDLE", ignore_case=True)
    assert tree("search_text", text="eedle", glob="*.py").startswith("3 matching lines in 1 files; 1 files")
    for glob in ("**/*.md", "**/README.md", "*"):
        assert tree("search_text", text="needle", glob=glob).startswith("1 matching lines in 1 files"), glob
    for glob in ("src/**/*.py", "**/main.py", "src/*.py"):
        assert tree("search_text", text="Needle", glob=glob).startswith("3 matching lines in 1 files"), glob
    assert tree("search_text", text="x", glob="src/**/*.txt").startswith("1 matching lines in 1 files")
    assert tree("search_text", text="Needle", path="src/main.py").startswith("3 matching lines in 1 files")
    assert tree("search_text", text="N.*e").startswith("0 matching"), "a text, no pattern"
    assert tree("search_text", text="absent").startswith("0 matching lines in 0 files")
    with pytest.raises(ToolError, match="line break"):
        tree("search_text", text="a\nb")
    with pytest.raises(InvalidArguments):
        tree("search_text", text="")


def test_search_is_bounded(tools: Any) -> None:
    for n in range(5):
        (tools.root / f"f{n}").write_text("needle " + "pad " * 200 + "\n" + "needle\n" * 200)
    text = tools("search_text", text="needle", limit=60)
    assert text.count("f0:") == 50 and text.count("f1:") == 10
    assert "more matching lines are not shown" in text and "[not complete: there may be more matches]" in text
    assert "…" in text and len(text.encode()) < 50_000
    (tools.root / "huge").write_bytes(b"z" * 6_000_000)
    assert "[not searched: 1 files that are larger than" in tools("search_text", text="zz")


def test_names_are_shown_on_one_line_whatever_they_are(tools: Any) -> None:
    for name in ["two\nlines", "a b ", "\x1b[31mred", "right\u202eleft", 'quo"te', "tab\t", "\u200bzero"]:
        (tools.root / name).write_text("needle")
    for text in (tools("list_files"), tools("search_text", text="needle")):
        assert len(text.splitlines()) == 8 and "\x1b" not in text and "\u202e" not in text and "\u200b" not in text
        assert '"two\\nlines"' in text and '"right\\u202eleft"' in text


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_L9_names_that_are_no_utf8(tools: Any) -> None:
    try:
        with open(os.fsencode(tools.root) + b"/odd\xff", "wb"):
            pass
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    outcome = tools.outcome("list_files")
    assert '"odd\\udcff"' in content_text(outcome.content)


def test_X5_read_output_pages_through_a_blob_to_the_last_byte() -> None:
    whole = "".join(f"line {n} ü\n" for n in range(3_000))
    blobs: dict[str, bytes] = {}

    class Store:
        def get_blob(self, session_id: str, sha256: str) -> bytes:
            from checkrein.errors import StoreError

            if session_id != "s" or sha256 not in blobs:
                raise StoreError("none")
            return blobs[sha256]

    class Some:
        def __init__(self, **members: Any) -> None:
            self.__dict__.update(members)

    def keep(data: bytes) -> str:
        blobs["a" * 64] = data
        return "a" * 64

    cut = content_text(cap(blocks(whole), 2_000, keep))
    offset = int(cut.split("offset=")[1].split(")")[0])
    head = cut.split("\n[... ")[0]
    context = ToolContext(Some(harness=Some(store=Store())), Some(id="s"), "c", 1, Path())  # type: ignore[arg-type]
    tool = {tool.name: tool for tool in Plugin().register_tools(None)}["read_output"]  # type: ignore[arg-type]
    text = head
    while True:
        page = tool.invoke(context, tool.validate({"output_id": "a" * 64, "offset": offset, "limit": 9_999}))
        first, rest = page.split("\n", 1)
        text += rest
        if "go on" not in first:
            break
        offset = int(first.split("offset=")[1])
    assert text == whole
    for bad in ("b" * 64, "../../etc/passwd", ""):
        with pytest.raises(ToolError) as info:
            tool.invoke(context, {"output_id": bad})
        assert info.value.code == "NOT_FOUND"
    with pytest.raises(ToolError, match="behind its end"):
        tool.invoke(context, {"output_id": "a" * 64, "offset": 10**9})


def blocks(text: str) -> Any:
    from checkrein.messages import TextBlock

    return [TextBlock(text)]


def test_installed_files_are_named_and_left_out(tools: Any) -> None:
    """A virtual environment below the folder is not what is asked about; by its name it is listed."""
    for path in ("own.txt", ".venv/pyvenv.cfg", ".venv/lib/huge.py", "web/node_modules/big.js", "web/page.html"):
        file = tools.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("needle " * (1 if path.startswith("own") else 100))
    listed = tools("list_files", recursive=True, sort="size")
    assert "huge.py" not in listed
    assert "big.js" not in listed
    assert "web/page.html" in listed
    assert "[not complete: installed or generated files in .venv, web/node_modules were left out]" in listed
    assert "huge.py" not in tools("search_text", text="needle")
    assert "huge.py" in tools("list_files", path=".venv", recursive=True)
