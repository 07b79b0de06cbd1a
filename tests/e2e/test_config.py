"""What the configuration makes the command line say."""

from __future__ import annotations

MISSPELT = '[[agents]]\nid = "main"\ntools = ["write_nope", "slow"]'
WORDS = "no tool matches 'write_nope'; did you mean 'write_note'?"


def test_a_misspelt_tool_is_said_with_the_nearest_name(cli):
    cli.script('"fine"', more=MISSPELT)
    done = cli.run("config", "check")
    assert (done.code, f"agents[0].tools: {WORDS}" in done.err) == (0, True)
    done = cli.run("run", "hi")
    assert (done.code, done.out) == (0, "fine\n")
    assert done.err.count(WORDS) == 1 and "slow" not in done.err
