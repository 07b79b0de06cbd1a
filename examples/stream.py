"""Follow a turn as it happens, steer it, and see in the log where the steering went.

Prints:
    look {"direction":"north"}
    -> nothing
    look {"direction":"south"}
    -> a house
    To the south there is a house.
    completed after 3 steps: turn/start user/message steering/message turn/end
"""

import anyio

from checkrein import Agent, TextDelta, ToolCall, ToolResult, tool
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel, call, text


@tool(read_only=True)
def look(direction: str) -> str:
    """Look into a direction."""
    return {"north": "nothing", "south": "a house"}[direction]


model = ScriptedModel(
    call("look", {"direction": "north"}),
    call("look", {"direction": "south"}),
    text("To the south there is a house.\n", pieces=4),
)


async def main() -> None:
    async with Agent(model, tools=[look]) as agent:
        async with agent.stream("What is around us?") as turn:
            async for item in turn:
                match item:
                    case TextDelta(text=piece):
                        print(piece, end="")
                    case ToolCall(arguments=arguments):
                        print(item.name, arguments)
                        if "north" in arguments:
                            agent.steer("and to the south?")
                    case ToolResult():
                        print("->", content_text(item.content))
        result = await turn.result()
        shown = ("turn/start", "user/message", "steering/message", "turn/end")
        kinds = " ".join(event.type for event in result.events if event.type in shown)
        print(f"{result.reason.kind} after {result.steps} steps: {kinds}")


anyio.run(main)
