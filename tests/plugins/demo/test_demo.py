"""The demo model: its answers are true, its calls real, its stream well formed."""

import itertools
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Agent, TextDelta
from checkrein.chunks import Assembler, CallChunk, FinishChunk, TextChunk, ThinkingChunk, UsageChunk
from checkrein.messages import (
    AssistantMessage,
    CallBlock,
    Message,
    Request,
    TextBlock,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from checkrein.tools import ToolContext
from checkrein_demo import DemoProvider, Plugin
from checkrein_demo.listing import parse_listing
from checkrein_demo.rules import SIGNATURE, decide
from checkrein_files import Plugin as Files

QUESTION = "What is in this folder, and which files are the largest?"


def user(text: str) -> UserMessage:
    return UserMessage([TextBlock(text)])


def schemas(*names: str) -> tuple[ToolSchema, ...]:
    tools = [tool.schema for tool in Files().register_tools(None)]  # type: ignore[arg-type]
    return tuple(schema for schema in tools if not names or schema.name in names)


def request(*messages: Message, tools: tuple[ToolSchema, ...] | None = None) -> Request:
    return Request("rules", list(messages), tools=schemas() if tools is None else tools, provider="demo")


async def answer(asked: Request) -> Assembler:
    assembler = Assembler()
    async for chunk in DemoProvider().stream(asked):
        assembler.push(chunk)
    return assembler


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "docs/deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Hello\n\nneedle one\n")
    (tmp_path / "data.csv").write_text("a,b\n" * 500)
    (tmp_path / "docs/guide.txt").write_text("Chapter 1\nneedle two\n" + "text\n" * 1_000)
    (tmp_path / "docs/deep/small").write_text("x")
    (tmp_path / "empty").touch()
    return tmp_path


def ask(workspace: Path, question: str, backend: str = "asyncio", **options: Any) -> Any:
    async def main() -> Any:
        async with Agent("demo:rules", plugins=[Files], workspace=workspace, **options) as agent:
            return await agent.run(question)

    return anyio.run(main, backend=backend)


def kinds(result: Any) -> list[str]:
    return [event.name for event in result.events if event.type == "tool/call"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_folder_question_ends_with_a_true_answer(workspace: Path, backend: str) -> None:
    result = ask(workspace, QUESTION, backend)
    assert result.reason.kind == "completed" and result.steps == 4
    assert kinds(result) == ["list_files", "list_files", "read_file"]
    text = result.text
    assert "This folder holds 3 files and 1 folder:" in text
    for name in ("docs/", "README.md", "data.csv", "empty"):
        assert f"- {name}" in text
    sizes = sorted(
        ((path.stat().st_size, str(path.relative_to(workspace))) for path in workspace.rglob("*") if path.is_file()),
        key=lambda pair: (-pair[0], pair[1]),
    )
    total = sum(size for size, _ in sizes)
    assert f"5 files in 2 folders, {total} bytes" in text
    for n, (size, name) in enumerate(sizes, 1):
        assert f"{n}. {name}, {size} bytes" in text
    assert "The largest begins:\nChapter 1\nneedle two" in text
    assert SIGNATURE in text
    assert result.usage.output > 0 and result.usage.reasoning > 0
    assert any(event.type == "assistant/thinking" for event in result.events)


def test_the_answer_is_true_for_random_folders(tmp_path: Path) -> None:
    rng = random.Random(7)
    for n in range(6):
        root = tmp_path / f"w{n}"
        root.mkdir()
        for i in range(rng.randrange(0, 9)):
            folder = root / rng.choice(["", "a", "b/c", "with space"])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{i}.txt").write_text("line\n" * rng.randrange(0, 400))
        text = ask(root, QUESTION).text
        files = sorted((-p.stat().st_size, p.relative_to(root).as_posix()) for p in root.rglob("*") if p.is_file())
        expected = [f"{i}. {name}, {-size} bytes" for i, (size, name) in enumerate(files[:5], 1)]
        assert [line for line in text.splitlines() if line[:1].isdigit() and "bytes" in line] == expected
        assert ("is empty" in text) == (not any(root.iterdir()))


def test_more_files_than_are_listed(tmp_path: Path) -> None:
    for i in range(600):
        (tmp_path / f"f{i:03}").write_bytes(b"x" * i)
    result = ask(tmp_path, QUESTION)
    assert "holds 600 files" in result.text and "- and more" in result.text
    assert "1. f599, 599 bytes" in result.text and "5. f595, 595 bytes" in result.text


@pytest.mark.parametrize(
    ("question", "expected", "calls"),
    [
        ("search for needle", "'needle' occurs in 2 lines of 2 files (5 searched):\n- README.md:3: needle one", 1),
        ('Please search for "absent thing"?', "'absent thing' does not occur in the 5 files I searched", 1),
        ("where is needle used?", "'needle' occurs in 2 lines", 1),
        ("read README.md", "README.md: lines 1 to 3 of 3 lines, 20 bytes\n\n# Hello\n\nneedle one", 1),
        ("Can you show me docs/guide.txt", "docs/guide.txt: lines 1 to 40 of 1002 lines", 1),
        ("count lines of data.csv", "data.csv has 500 lines.", 1),
        ("How many lines has docs/deep/small?", "docs/deep/small has 1 line.", 1),
        ("count the lines in empty", "empty is empty: 0 lines.", 1),
        ("what is in docs?", "docs holds 1 file and 1 folder:\n- deep/\n- guide.txt", 3),
        ("list docs/deep", "docs/deep holds 1 file and 0 folders:\n- small", 2),
        ("read READM.md", "did you mean 'README.md'?", 2),
        ("read ../secret.txt", "leads outside of the workspace", 2),
        ("what is in ../..?", "could not do it", 1),
        ("hello there", "Hello. I can do four things", 0),
        ("what can you do", "I can do four things", 0),
        ("What is the meaning of life?", "I have no rule for that.", 0),
        ("...", "I have no rule for that.", 0),
    ],
)
def test_questions(workspace: Path, question: str, expected: str, calls: int) -> None:
    result = ask(workspace, question)
    assert result.reason.kind == "completed"
    assert expected in result.text and SIGNATURE in result.text
    assert len(kinds(result)) == calls


@pytest.mark.parametrize(
    ("question", "tool"),
    [
        (QUESTION, "list_files"),
        ("search for x", "search_text"),
        ("read a.txt", "read_file"),
        ("count lines of a", "read_file"),
    ],
)
def test_a_tool_that_is_missing_is_said(question: str, tool: str) -> None:
    move = decide(request(user(question), tools=()))
    assert not move.calls and f"a tool named {tool}" in move.text and "my tools: none" in move.text
    others = tuple(schema for schema in schemas() if schema.name != tool)
    assert others[0].name in decide(request(user(question), tools=others)).text


def test_without_read_file_the_folder_question_still_gets_its_answer() -> None:
    listing = ".: 1 file, 0 folders, 7 bytes in files\n         7  a"
    call = AssistantMessage([CallBlock("c1", "list_files", "{}")])
    asked = request(
        user(QUESTION), call, ToolMessage("c1", "list_files", [TextBlock(listing)]), tools=schemas("list_files")
    )
    assert "1. a, 7 bytes" in decide(asked).text


def test_only_parameters_the_tool_has_are_given() -> None:
    bare = ToolSchema("list_files", "", {"type": "object", "properties": {"path": {"type": "string"}}})
    assert decide(request(user(QUESTION), tools=(bare,))).calls == (("list_files", {"path": "."}),)


def test_the_stream_is_in_small_pieces_and_well_formed() -> None:
    async def main() -> None:
        chunks = [chunk async for chunk in DemoProvider().stream(request(user(QUESTION)))]
        assert [type(chunk) for chunk in chunks[-2:]] == [UsageChunk, FinishChunk]
        assert isinstance(chunks[-1], FinishChunk) and chunks[-1].reason == "tool_calls"
        assert sum(isinstance(chunk, ThinkingChunk) for chunk in chunks) > 2
        assert sum(isinstance(chunk, CallChunk) for chunk in chunks) >= 2
        final = [chunk async for chunk in DemoProvider().stream(request(user("hello")))]
        assert isinstance(final[-1], FinishChunk) and final[-1].reason == "stop"
        pieces = [chunk.text for chunk in final if isinstance(chunk, TextChunk)]
        assert len(pieces) > 10 and max(map(len, pieces)) <= 12

    anyio.run(main)


def test_it_is_pure() -> None:
    async def main() -> None:
        asked = request(user(QUESTION))
        first, second = await answer(asked), await answer(asked)
        assert [p.text() for p in first.parts.values()] == [p.text() for p in second.parts.values()]

    anyio.run(main)


def test_only_the_last_question_counts() -> None:
    call = AssistantMessage([CallBlock("c1", "list_files", "{}")])
    old = ToolMessage("c1", "list_files", [TextBlock(".: 1 file, 0 folders, 7 bytes in files\n         7  a")])
    move = decide(request(user(QUESTION), call, old, AssistantMessage([TextBlock("done")]), user("read b.txt")))
    assert move.calls == (("read_file", {"path": "b.txt", "limit": 40}),)
    steered = decide(request(user(QUESTION), call, old, user("hello")))
    assert steered.text.startswith("Hello")
    context = decide(request(user(QUESTION), user("[from clock] it is noon")))
    assert context.calls == (("list_files", {"path": "."}),)


RESULTS = [
    "",
    "nonsense",
    ".: 1 file, 0 folders, 7 bytes in files\n         7  a",
    ".: 0 files, 2 folders, 0 bytes in files",
]


@pytest.mark.parametrize("question", [QUESTION, "search for x", "read a.txt", "count lines of a"])
def test_it_ends_whatever_the_tools_answer(question: str) -> None:
    """At most four rounds, for any result, error or not."""
    for text, is_error in itertools.product(RESULTS, (False, True)):
        messages: list[Message] = [user(question)]
        for round_number in range(5):
            move = decide(request(*messages))
            if not move.calls:
                break
            ((name, _),) = move.calls
            call_id = f"c{round_number}"
            messages += [
                AssistantMessage([CallBlock(call_id, name, "not json")]),
                ToolMessage(call_id, name, [TextBlock(text)], is_error),
            ]
        else:
            pytest.fail(f"{question!r} never ends with {text!r}")
        assert SIGNATURE in move.text


def test_listing_parser_reads_what_the_tool_writes(workspace: Path) -> None:
    (workspace / "two\nlines").write_text("x")
    (workspace / "link").symlink_to("README.md")
    tool = next(tool for tool in Files().register_tools(None) if tool.name == "list_files")  # type: ignore[arg-type]
    context = ToolContext(None, None, "c", 1, workspace)  # type: ignore[arg-type]
    listing = parse_listing(tool.invoke(context, {}).content[0].text)
    assert listing is not None
    assert [file.path for file in listing.files] == ["README.md", "data.csv", "empty", '"two\\nlines"']
    assert (listing.folders, listing.others, listing.file_count, listing.folder_count) == (
        ["docs"],
        ["link (link)"],
        4,
        1,
    )
    assert parse_listing("anything else") is None


def test_provider_and_plugin() -> None:
    (provider,) = Plugin(Plugin.Config(delay_s=0.5)).register_providers(None)  # type: ignore[arg-type]
    assert provider.name == "demo" and provider.missing() is None and provider.window_tokens("rules") is None
    assert provider.default_model() is None, "auto never takes it"


def test_deltas_reach_a_live_consumer(workspace: Path) -> None:
    async def main() -> list[str]:
        async with Agent("demo:rules", plugins=["files"], workspace=workspace) as agent, agent.stream("hello") as turn:
            return [event.text async for event in turn if isinstance(event, TextDelta)]

    pieces = anyio.run(main)
    assert len(pieces) > 5 and "".join(pieces).startswith("Hello")
