"""The plugin `scripted`, and scripts as plain data."""

from __future__ import annotations

import json

import pytest

from checkrein.chunks import CallChunk, FinishChunk, TextChunk, ThinkingChunk, UsageChunk
from checkrein.errors import ConfigError, CredentialsError, ProviderError
from checkrein.messages import Request, TextBlock, Usage, UserMessage
from checkrein.providers import Provider, Providers
from checkrein.testing import ScriptedModel, load_script, parse_script, run_virtual, turns_of
from checkrein_scripted import Plugin

ASKED = Request("m", [UserMessage([TextBlock("hi")])])

TOML = """
repeat = true
turns = [
    { thinking = "hm", calls = [{ name = "w", arguments = { city = "Paris" } }, { name = "b", raw = '{"a', id = "" }] },
    { text = "sunny", pieces = 2, usage = { input = 12, output = 4 }, wait_s = 3600 },
    "bare",
]
"""


def provider(**config):
    (found,) = Plugin(Plugin.Config(**config)).register_providers(None)
    return found


def play(model, turns=1):
    async def main():
        return [[chunk async for chunk in model.stream(ASKED)] for _ in range(turns)]

    return run_virtual(main)


def test_a_toml_file_is_played(tmp_path):
    file = tmp_path / "script.toml"
    file.write_text(TOML)
    model = provider(script=str(file), window_tokens=9)
    first, second, third, again = play(model, 4)

    assert isinstance(model, Provider)
    assert model.window_tokens("x") == 9
    assert first == [
        ThinkingChunk(0, "hm"),
        CallChunk(1, "call_1_1", "w", '{"city":"Paris"}'),
        CallChunk(2, None, "b", '{"a'),
        FinishChunk("tool_calls"),
    ]
    assert second == [
        TextChunk(0, "su"),
        TextChunk(0, "nny"),
        UsageChunk(Usage(input=12, output=4)),
        FinishChunk("stop"),
    ]
    assert third[0] == TextChunk(0, "bare")
    assert again[0] == first[0]


def test_a_json_file_may_hold_only_the_turns(tmp_path):
    file = tmp_path / "script.json"
    file.write_text(json.dumps(["a", {"text": "b", "repeat": True}]))
    assert [chunks[0].text for chunks in play(provider(script=str(file)), 3)] == ["a", "b", "b"]


def test_turns_may_stand_in_the_config():
    assert play(provider(turns=["a"], repeat=True), 2)[1][0] == TextChunk(0, "a")


@pytest.mark.parametrize(
    ("turn", "code", "retryable", "kind"),
    [
        ({"error": "RATE_LIMIT"}, "RATE_LIMIT", True, "generate"),
        ({"text": "a", "error": {"code": "X", "message": "m", "retryable": True}}, "X", True, "stream"),
        ({"error": {}}, "SERVER_ERROR", True, "generate"),
    ],
)
def test_errors(turn, code, retryable, kind):
    with pytest.raises(ProviderError) as raised:
        play(provider(turns=[turn]))
    assert (raised.value.code, raised.value.retryable, raised.value.kind) == (code, retryable, kind)


def test_torn_finish_and_hang():
    assert play(provider(turns=[{"text": "a", "torn": True}])) == [[TextChunk(0, "a")]]
    assert play(provider(turns=[{"finish": "refusal"}])) == [[FinishChunk("refusal")]]
    (hang,) = turns_of(parse_script([{"hang": True}]))
    assert [type(item).__name__ for item in hang] == ["Wait"]


def test_a_turn_can_be_held_by_a_file(tmp_path):
    import anyio

    gate = tmp_path / "go"
    model = ScriptedModel(*turns_of(parse_script([{"text": "a", "wait_file": str(gate)}])))

    async def main():
        got = []

        async def drain():
            got.extend([chunk async for chunk in model.stream(ASKED)])

        async with anyio.create_task_group() as group:
            group.start_soon(drain)
            await anyio.sleep(1)
            before = list(got)
            gate.touch()
        return before, got

    before, after = run_virtual(main)
    assert before == []
    assert after[0] == TextChunk(0, "a")


@pytest.mark.parametrize(
    ("data", "words", "path"),
    [
        ([{"texts": "a"}], "unknown field `texts`", ".turns[0]"),
        ([{"calls": [{"name": 3}]}], "Expected `str`, got `int`", ".turns[0].calls[0].name"),
        ([{"calls": [{"name": "a", "raw": "", "arguments": {}}]}], "got both", ".turns[0].calls[0]"),
        ([{"torn": True, "finish": "stop"}], "got finish and torn", ".turns[0]"),
        ([{"pieces": 0}], "pieces >= 1", ".turns[0]"),
        ([{"text": "a", "repeat": True}, "b"], "only on the last turn", ".turns[0].repeat"),
        ({"turn": []}, "unknown field `turn`", ""),
        (3, "Expected `object`", ""),
    ],
)
def test_a_bad_script_is_a_config_error_with_its_path(data, words, path):
    with pytest.raises(ConfigError) as raised:
        parse_script(data, file="s.json", path="plugins.scripted")
    assert words in str(raised.value)
    assert raised.value.path == f"plugins.scripted{path}"
    assert raised.value.file == "s.json"


def test_a_bad_file_is_a_config_error_with_its_name(tmp_path):
    file = tmp_path / "s.toml"
    with pytest.raises(ConfigError, match="No such file"):
        load_script(file)
    file.write_text("turns = [")
    with pytest.raises(ConfigError, match=r"expected \.toml text") as raised:
        provider(script=str(file))
    assert raised.value.file == str(file)


def test_script_and_turns_together_are_refused():
    with pytest.raises(ConfigError, match="got both"):
        provider(script="a", turns=["b"])


def test_without_a_script_the_provider_says_what_to_set():
    providers = Providers()
    (unset,) = Plugin().register_providers(None)
    providers.add(unset)

    assert isinstance(unset, Provider)
    with pytest.raises(CredentialsError, match=r"\[plugins\.scripted\]"):
        providers.resolve("scripted:x")
    with pytest.raises(CredentialsError):
        providers.resolve("auto")
    providers.add(provider(turns=["a"]))
    assert providers.resolve("auto")[1] == "script"


@pytest.mark.parametrize(
    ("at", "before"), [("start", ""), ("middle", "sun"), ("end", "sunny!")], ids=["start", "middle", "end"]
)
def test_where_a_turn_waits(at, before):
    import anyio

    model = ScriptedModel(*turns_of(parse_script([{"text": "sunny!", "pieces": 2, "wait_s": 10, "wait_at": at}])))
    shown = []

    async def main():
        async def drain():
            async for chunk in model.stream(ASKED):
                shown.append(getattr(chunk, "text", ""))  # noqa: PERF401 - piece by piece is the point

        async with anyio.create_task_group() as group:
            group.start_soon(drain)
            await anyio.sleep(5)
            early = "".join(filter(None, shown))
        return early, "".join(filter(None, shown))

    assert run_virtual(main) == (before, "sunny!")


def test_an_agent_of_a_config_file_plays_its_script(tmp_path, run):
    from checkrein import Harness, tool

    @tool(read_only=True)
    def weather(city: str) -> str:
        """Current weather."""
        return f"sunny in {city}"

    script = tmp_path / "script.toml"
    script.write_text(
        'turns = [{ calls = [{ name = "weather", arguments = { city = "Paris" } }] },'
        ' { text = "It is sunny.", usage = { input = 2, output = 3 } }]'
    )
    (tmp_path / "checkrein.toml").write_text(
        f'[plugins.scripted]\nscript = "{script.as_posix()}"\n[[agents]]\nid = "main"\nmodel = "scripted:any"\n'
    )

    async def main():
        async with Harness(tmp_path / "checkrein.toml", tools=[weather], workspace=tmp_path) as harness:
            return await harness.agents["main"].run("Weather?")

    result = run(main).check()
    assert (result.text, result.steps, result.usage.output) == ("It is sunny.", 2, 3)


def test_a_bad_script_in_a_config_file_stops_the_start(tmp_path, run):
    from checkrein import Harness

    (tmp_path / "checkrein.toml").write_text(
        '[plugins.scripted]\nturns = [{ txt = "a" }]\n[[agents]]\nid = "main"\nmodel = "scripted:any"\n'
    )

    async def main():
        async with Harness(tmp_path / "checkrein.toml", workspace=tmp_path):
            pass

    with pytest.raises(ConfigError, match="unknown field `txt`") as raised:
        run(main)
    assert "plugins.scripted.turns[0]" in str(raised.value)


def test_without_a_script_an_agent_is_refused_before_it_starts(tmp_path, run):
    from checkrein import Agent

    async def main():
        async with Agent("scripted:any", workspace=tmp_path):
            pass

    with pytest.raises(CredentialsError, match=r"\[plugins\.scripted\]"):
        run(main)
