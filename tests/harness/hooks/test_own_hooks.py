"""H1, H3: hooks that a plugin specifies itself go through the same dispatcher (ownhooks.call)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hookkit import play, plugin, raising, wrapper

from checkrein.errors import ConfigError, PluginError, PluginFault
from checkrein.hookspecs import HookInfo, hookspec
from checkrein.ownhooks import call


class Specs:
    """The hooks of a plugin that reviews text."""

    @hookspec
    def review_text(self, agent: Any, text: str) -> Any:
        """Return the text to go on with."""

    @hookspec
    def review_who(self, agent: Any) -> Any:
        """Say who reviews."""

    @hookspec
    def review_names(self) -> Any:
        """Bring names."""

    @hookspec
    def review_done(self, agent: Any, text: str) -> Any:
        """Observe the end."""


INFOS = {
    "review_text": HookInfo("fold", "the caller gets the fault", 5.0, value="text"),
    "review_who": HookInfo("first", "as None, plus a fault", 5.0),
    "review_names": HookInfo("collect", "contained", 5.0),
}
REVIEW = SimpleNamespace(name="review", hookspecs=Specs, hook_infos=INFOS)


def calling(run: Any, *plugins: Any, hook: str, args: Any) -> tuple[Any, Any]:
    answers: list[Any] = []

    async def act_on(agent: Any) -> Any:
        try:
            answers.append(await call(agent.harness.hooks, hook, agent.session, *args(agent)))
        except (PluginFault, ConfigError) as exc:
            answers.append(exc)
        return SimpleNamespace(ok=True)

    played = play(run, REVIEW, *plugins, act_on=act_on)
    return answers[0], played


def test_H1_a_fold_of_a_plugins_own(run):
    async def shout(text: str) -> str:
        await anyio.sleep(1)
        return text.upper()

    def around(agent: Any) -> Any:
        value = yield
        return f"<{value}>"

    plugins = [plugin("a", review_text=shout), plugin("b", review_text=lambda text, agent: f"{text} {agent.id}")]
    answer, played = calling(
        run, *plugins, wrapper("w", review_text=around), hook="review_text", args=lambda agent: (agent, "hi")
    )
    assert answer == "<HI main>"
    assert played.account("a", "review_text").changes == 1


@pytest.mark.parametrize("broken", [raising(), anyio.sleep_forever], ids=["raises", "late"])
def test_H1_its_faults_follow_its_policy(run, broken):
    async def late() -> None:
        await anyio.sleep_forever()

    bad = plugin("bad", review_text=late if broken is anyio.sleep_forever else broken)
    answer, played = calling(run, bad, hook="review_text", args=lambda agent: (agent, "hi"))
    assert isinstance(answer, PluginFault) and answer.plugin == "bad"
    assert played.faults == [("bad", "review_text", "turn_ended")]


def test_H1_first_collect_and_observe(run):
    answer, played = calling(
        run,
        plugin("bad", review_who=raising(), review_names=raising()),
        plugin("me", review_who=lambda agent: agent.id),
        plugin("never", review_who=lambda: "never"),
        hook="review_who",
        args=lambda agent: (agent,),
    )
    assert answer == "main" and played.faults == [("bad", "review_who", "contained")]
    names = [plugin("a", review_names=lambda: "a"), plugin("none", review_names=lambda: None)]
    answer, _ = calling(run, *names, plugin("b", review_names=lambda: "b"), hook="review_names", args=lambda agent: ())
    assert answer == ["a", "b"]
    seen: list[str] = []
    watching = plugin("sees", review_done=lambda text: seen.append(text))
    answer, played = calling(
        run, plugin("bad", review_done=raising()), watching, hook="review_done", args=lambda agent: (agent, "end")
    )
    assert answer is None and seen == ["end"] and played.faults == [("bad", "review_done", "contained")]


def test_H1_a_hook_nobody_implements(run):
    assert calling(run, hook="review_text", args=lambda agent: (agent, "hi"))[0] == "hi"
    assert calling(run, hook="review_names", args=lambda agent: ())[0] == []
    assert calling(run, hook="review_who", args=lambda agent: (agent,))[0] is None


def test_H3_a_misspelt_or_foreign_hook_is_refused(run):
    answer, _ = calling(run, hook="review_txt", args=lambda agent: (agent, "hi"))
    assert isinstance(answer, ConfigError) and "review_text" in str(answer)
    answer, _ = calling(run, hook="tools_guard", args=lambda agent: (agent, None))
    assert isinstance(answer, ConfigError)
    with pytest.raises(PluginError, match="unknown argument"):
        calling(run, plugin("bad", review_text=lambda txt: txt), hook="review_text", args=lambda agent: (agent, "hi"))


def test_H4_a_plugins_own_hooks_leave_and_come_back_with_it(run):
    """Another one's implementation waits for them; the same specifications may come from a new plugin."""
    seen: list[Any] = []

    async def act_on(agent: Any) -> Any:
        plugins, hooks = agent.harness.plugins, agent.harness.hooks

        async def ask() -> None:
            try:
                seen.append(await call(hooks, "review_who", agent.session, agent))
            except ConfigError as exc:
                seen.append(exc)

        await ask()
        review = plugins.unregister("review")
        await ask()
        plugins.register(review, "review")
        await ask()
        plugins.unregister("review")
        plugins.register(SimpleNamespace(hookspecs=Specs, hook_infos=INFOS), "other")
        await ask()
        return SimpleNamespace(ok=True)

    play(run, REVIEW, plugin("a", review_who=lambda agent: "me"), act_on=act_on)
    assert [answer for answer in seen if not isinstance(answer, ConfigError)] == ["me"] * 3
    assert isinstance(seen[1], ConfigError) and "review_who" in str(seen[1])


def test_H4_a_refused_plugin_leaves_no_hooks_behind(run):
    """Mended, it is taken the next time."""
    seen: list[Any] = []

    async def act_on(agent: Any) -> Any:
        plugins = agent.harness.plugins
        bad = SimpleNamespace(hookspecs=Specs, hook_infos=INFOS, requires=("nobody",))
        with pytest.raises(PluginError, match="requires the plugin 'nobody'"):
            plugins.register(bad, "late")
        seen.append("review_who" in plugins.specs)
        plugins.register(SimpleNamespace(hookspecs=Specs, hook_infos=INFOS), "late")
        seen.append("review_who" in plugins.specs)
        return SimpleNamespace(ok=True)

    play(run, act_on=act_on)
    assert seen == [False, True]
