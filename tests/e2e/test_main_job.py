"""The README's main job with nothing configured: the demo model's answer is true of the folder."""

from __future__ import annotations

QUESTION = "What is in this folder, and which files are the largest?"


def test_main_job_is_true_of_the_folder(cli):
    sizes = {"small.txt": 10, "middle.bin": 5_000, "deep/large.csv": 40_000}
    for name, size in sizes.items():
        path = cli.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    (cli.folder / "plugins").mkdir()
    (cli.folder / "harness.py").write_text("raise ImportError\n")
    done = cli.run("run", QUESTION)
    assert done.code == 0, done.err
    for words in ("small.txt", "middle.bin", "deep/", "plugins/", "harness.py"):
        assert words in done.out
    largest = [line for line in done.out.splitlines() if line[:2] in ("1.", "2.")]
    assert ["deep/large.csv" in largest[0], "40000" in largest[0]] == [True, True], done.out
    assert "middle.bin" in largest[1]
    assert done.err.splitlines()[0].startswith("no model key and no config file: the demo model answers")
    assert "oracle: balanced" in done.err
    calls = [event["name"] for event in cli.events() if event["type"] == "tool/call"]
    assert calls.count("list_files") >= 2  # the answer comes from tools, the second round from the first one's result
    assert cli.run("check", str(cli.logs[0])).code == 0


def test_a_key_in_the_environment_is_used_instead(cli):
    from checkrein.testing import StrictChatServer

    with StrictChatServer("I am a real one.", api_key="secret-key") as server:
        cli.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "secret-key"}
        done = cli.run("run", QUESTION)
    assert (done.code, done.out) == (0, "I am a real one.\n"), done.err
    assert "demo" not in done.err
    assert "secret-key" not in cli.logs[0].read_text()
