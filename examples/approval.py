"""Ask a person before an effectful tool runs: a guard of your own, and an approver of your own.

Prints:
    may delete run? delete report.txt
    may delete run? delete /etc/passwd
    deleted report.txt
    denied by the user; the tool did not run
"""

import anyio

from checkrein import Ask, Harness, hookimpl, tool
from checkrein.agents import AgentLike, Approval, Approver
from checkrein.calls import Call
from checkrein.config import AgentConfig, HarnessConfig, SessionConfig
from checkrein.messages import ToolMessage, content_text
from checkrein.testing import ScriptedModel, call


@tool
def delete(path: str) -> str:
    """Delete a file (this one only says so)."""
    return f"deleted {path}"


class Careful:
    @hookimpl
    def tools_guard(self, call: Call) -> Ask | None:
        return Ask(f"{call.name} {call.arguments['path']}") if call.effect == "effectful" else None


class Person:
    async def decide(self, agent: AgentLike, approval: Approval) -> str:
        print(f"may {approval.tool} run? {approval.summary}")
        return "allowed_once" if approval.arguments["path"] == "report.txt" else "denied"


model = ScriptedModel(call("delete", {"path": "report.txt"}), call("delete", {"path": "/etc/passwd"}), "Done.")


async def main() -> None:
    config = HarnessConfig(
        model="scripted:any", agents=(AgentConfig(id="main"),), session=SessionConfig(store="memory")
    )
    harness = Harness(config=config, tools=[delete], plugins=[Careful], providers=[model], found=[])
    harness.provide(Approver, Person())
    async with harness:
        agent = harness.agents["main"]
        (await agent.run("clean up")).check()
        for message in agent.next_request().messages:
            if isinstance(message, ToolMessage):
                print(content_text(message.content))


anyio.run(main)
