"""Public bug reports acted out by a whole agent over scripted bodies: what runs, what is logged, what is sent next."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest

from checkrein import Agent, tool
from checkrein.codec import decode, encode, seal
from checkrein.events import AssistantAnswer, AssistantThinking, ToolResulted, ToolStarted
from checkrein_openai import OpenAIConfig, OpenAIProvider
from checkrein_openai.config import resolve
from checkrein_retry import Plugin as Retries
from checkrein_retry import RetryConfig

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def stream(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    frames = [
        *({"choices": [{"delta": delta}]} for delta in deltas),
        {"choices": [{"delta": {}, "finish_reason": finish}]},
    ]
    return "".join([*(f"data: {json.dumps(frame)}\n\n" for frame in frames), "data: [DONE]\n\n"]).encode()


def calls(*entries: tuple[Any, str, Any], **more: Any) -> bytes:
    listed = [{"index": n, "id": i, "function": {"name": f, "arguments": a}} for n, (i, f, a) in enumerate(entries)]
    return stream({**more, "tool_calls": listed}, finish="tool_calls")


class Server:
    """Answers request n with body n, the last one for ever, and keeps what was asked."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = bodies
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(json.loads(request.content))
        body = self.bodies[min(len(self.asked), len(self.bodies)) - 1]
        return httpx2.Response(200, content=body)

    def ids(self) -> list[tuple[list[str], list[str]]]:
        """Of each request: the ids its calls have, and those its results answer."""
        return [
            (
                [call["id"] for message in asked["messages"] for call in message.get("tool_calls", ())],
                [message["tool_call_id"] for message in asked["messages"] if message["role"] == "tool"],
            )
            for asked in self.asked
        ]


ran: list[str] = []


@tool
def note(text: str = "nothing") -> str:
    """Note a text."""
    ran.append(text)
    return f"noted {text}"


@tool
def health() -> str:
    """Say how it goes."""
    ran.append("health")
    return "well"


@pytest.fixture
def play(backend: str) -> Callable[..., Any]:
    ran.clear()

    def run(server: Server, *prompts: str, plugins: list[object] | None = None, **config: Any) -> Any:
        at = resolve("openai", OpenAIConfig(base_url="http://localhost/v1", default_model="m", **config))
        provider = OpenAIProvider(at, lambda: httpx2.MockTransport(server))

        async def main() -> Any:
            try:
                async with Agent(provider, tools=[note, health], plugins=plugins or []) as agent:
                    results = [await agent.run(prompt) for prompt in prompts or ("go",)]
                    return results, list(agent.session.events)
            finally:
                await provider.aclose()

        return anyio.run(main, backend=backend)

    return run


@BACKENDS
def test_case_R01_R02_thinking_goes_back_within_the_tool_loop(play):
    thoughtful = calls(("a", "note", '{"text":"1"}'), reasoning_content="I think.")
    server = Server(thoughtful, calls(("b", "health", "")), stream({"content": "ok"}))
    [result], events = play(server, quirks={"reasoning": "always"})
    assert result.reason.kind == "completed"
    answers = [message for message in server.asked[-1]["messages"] if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in answers] == ["I think.", ""]
    assert [event.text for event in events if isinstance(event, AssistantThinking)] == ["I think."]


@BACKENDS
def test_case_R06_the_signature_of_a_call_survives_log_and_wire(play):
    entry = {"index": 0, "id": "c1", "function": {"name": "note", "arguments": "{}"}}
    signed = {**entry, "extra_content": {"google": {"thought_signature": "AbC="}}}
    server = Server(stream({"tool_calls": [signed]}, finish="tool_calls"), stream({"content": "ok"}))
    play(server)
    del signed["index"]
    assert server.asked[1]["messages"][1]["tool_calls"] == [{**signed, "type": "function"}]


@BACKENDS
@pytest.mark.parametrize("id_", ["run:0", "", None, 7])
def test_case_S22_S24_the_same_id_in_every_step_is_paired_each_time(play, id_):
    server = Server(*[calls((id_, "note", '{"text":"x"}'))] * 3, stream({"content": "ok"}))
    [result], _ = play(server)
    assert (result.reason.kind, ran) == ("completed", ["x"] * 3)
    for asked, answered in server.ids():
        assert asked == answered
        assert len(set(asked)) == len(asked)


@BACKENDS
def test_case_S23_S25_twins_in_one_answer_both_run(play):
    server = Server(calls(("dup", "note", '{"text":"1"}'), ("dup", "note", '{"text":"2"}')), stream({"content": "ok"}))
    play(server)
    asked, answered = server.ids()[-1]
    assert (sorted(ran), asked, len(set(asked))) == (["1", "2"], answered, 2)


@BACKENDS
@pytest.mark.parametrize("arguments", ['{"text": "/tmp/x", "more": tr', '["oops"]', "1"])
def test_case_S40_S41_S42_bad_arguments_never_run_and_never_poison_the_history(play, arguments):
    server = Server(calls(("c", "note", arguments)), stream({"content": "sorry"}))
    [result], events = play(server)
    assert (result.reason.kind, ran) == ("completed", [])
    [bad] = [event for event in events if isinstance(event, ToolResulted)]
    assert (bad.is_error, bad.error.code) == (True, "INVALID_ARGUMENTS")
    assert server.asked[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


@BACKENDS
def test_case_S16_a_tool_without_parameters_runs_the_first_time(play):
    server = Server(calls(("c", "health", "")), stream({"content": "ok"}))
    play(server)
    assert ran == ["health"]


@BACKENDS
def test_case_S17_arguments_cut_by_the_token_limit_do_not_run_and_the_next_turn_is_valid(play):
    cut = {
        "content": "Writing.",
        "tool_calls": [{"index": 0, "id": "c", "function": {"name": "note", "arguments": '{"te'}}],
    }
    server = Server(stream(cut, finish="length"), stream({"content": "ok"}))
    (first, second), events = play(server, "a", "b")
    assert (first.reason.kind, first.reason.error, ran) == ("error", "max_tokens", [])
    assert second.reason.kind == "completed"
    assert not [event for event in events if isinstance(event, ToolStarted)]
    assert server.ids()[-1] == ([], [])


@BACKENDS
def test_case_S29_an_answer_that_promises_calls_is_retried_and_then_an_error(play):
    server = Server(stream({"content": "I'll read it first."}, finish="tool_calls"))
    [result], events = play(server, plugins=[Retries(RetryConfig(max_retries=2, first_delay_s=0.0))])
    assert (result.reason.kind, result.reason.code, len(server.asked)) == ("error", "MALFORMED_RESPONSE", 3)
    assert not [event for event in events if isinstance(event, AssistantAnswer)]


@BACKENDS
def test_case_S33_surrogates_are_joined_replaced_and_counted_and_the_log_loads(play):
    server = Server(stream({"content": "\ud83d"}, {"content": "\ude00 \udc97"}), stream({"content": "ok"}))
    (first, _), events = play(server, "a", "b")
    assert first.text == "\U0001f600 \ufffd"
    answer = next(event for event in events if isinstance(event, AssistantAnswer))
    assert answer.cleaned == 1
    assert decode(seal(encode(answer))) == answer
    assert server.asked[1]["messages"][1]["content"] == "\U0001f600 \ufffd"


@BACKENDS
def test_case_R07_call_markup_runs_as_a_call(play):
    markup = (
        '<|DSML|tool_calls><|DSML|invoke name="note"><|DSML|parameter name="text" string="true">hi</|DSML|parameter>'
        "</|DSML|invoke></|DSML|tool_calls>"
    )
    server = Server(stream({"content": markup}), stream({"content": "ok"}))
    [result], _ = play(server, quirks={"dsml": True})
    assert (ran, result.text) == (["hi"], "ok")


@BACKENDS
def test_M11_a_lenient_ending_is_accepted_by_config_and_logged(play):
    body = b'data: {"choices":[{"delta":{"content":"4"}}]}\n\ndata: [DONE]\n\n'
    [result], _ = play(Server(body))
    assert result.reason.kind == "interrupted"
    [result], events = play(Server(body), lenient_finish=True)
    assert (result.reason.kind, result.text) == ("completed", "4")
    assert [event.lenient_finish for event in events if hasattr(event, "lenient_finish")] == [True]


@BACKENDS
def test_T4_a_refusal_is_an_error_of_kind_refused(play):
    [result], _ = play(Server(stream({"refusal": "I can't help."})))
    assert (result.reason.kind, result.reason.error) == ("error", "refused")


DETAILS = [
    {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": "I look "},
    {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": "it up.", "signature": "c2lnbmVk"},
    {"type": "reasoning.encrypted", "index": 1, "format": "anthropic-claude-v1", "data": "b3BhcXVl"},
]
BLOCKS = [
    {"type": "thinking", "thinking": "I look ", "signature": None},
    {"type": "thinking", "thinking": "it up.", "signature": ""},
    {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"},
    {"type": "thinking", "thinking": "Yes.", "signature": "c2Vjb25k"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
]
WHOLE = {
    "reasoning_details": [{**DETAILS[0], "text": "I look it up.", "signature": "c2lnbmVk"}, DETAILS[2]],
    "thinking_blocks": [{**BLOCKS[2], "thinking": "I look it up."}, *BLOCKS[3:]],
}


class Gateway(Server):
    """A gateway before a model that wants the thinking of each answer with calls back, whole and as it was signed."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        for message in json.loads(request.content)["messages"]:
            if message.get("tool_calls") and not any(message.get(name) == whole for name, whole in WHOLE.items()):
                error = {"message": "Expected thinking or redacted_thinking, but found tool_use"}
                return httpx2.Response(400, json={"error": error})
        return super().__call__(request)


@BACKENDS
@pytest.mark.parametrize(("member", "pieces"), [("reasoning_details", DETAILS), ("thinking_blocks", BLOCKS)])
def test_case_R03_signed_thinking_goes_back_through_a_gateway_as_it_came(play, member, pieces):
    """The signed thinking before a call was lost on its way through the history, so the tool loop ended in a 400."""
    entry = {"index": 0, "id": "c1", "function": {"name": "note", "arguments": '{"text":"hi"}'}}
    thoughtful = stream(*({member: [piece]} for piece in pieces), {"tool_calls": [entry]}, finish="tool_calls")
    server = Gateway(thoughtful, stream({"content": "ok"}))
    results, _ = play(server, "go", "and on")
    assert [result.text for result in results] == ["ok", "ok"] and ran == ["hi"]
    assert len(server.asked) == 3
