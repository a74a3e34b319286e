"""An agent for clients to meet: what the user says picks the scene that the model plays.

Everything behind it is the real thing. A scene is a list of turns, one for each model call since the user spoke.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from holodeck.agent.definition import AgentDefinition, TextInstructions
from holodeck.agent.settings import AgentLoopConfig, Prediction, StateSettings
from holodeck.core.events import ActivityPatched, ActivityShown, CustomSent
from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, UserMessage, text_of
from holodeck.core.tools import Approval, ToolResult, ToolSchema
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelUnreachable
from holodeck.models.port import Listener, ModelReply, Prompt
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.port import ToolContext

LONG_REPLY = [f"{number} " for number in range(5_000)]
UNICODE = ["👩‍👩‍👧", "‍👦 ", "שלום ", "e", "\u0301 ", "line\u2028para\u2029end ", '"quoted" \\ \t\r\n', "\x7f𝄞"]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
USAGE = TokenUsage(prompt_tokens=12, completion_tokens=5)

Scene = Sequence[Turn] | Callable[[Prompt], Sequence[Turn]]


def _forever() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


def _a_while() -> "asyncio.Future[None]":
    """A slow model: what it says in all takes longer than the server waits for a client that left."""
    return asyncio.ensure_future(asyncio.sleep(1.5))


def _what_is_seen(prompt: Prompt) -> Sequence[Turn]:
    content = _last_user(prompt).content
    parts = content if isinstance(content, tuple) else (TextPart(content),)
    media = [
        f"{part.mime_type} {part.filename or part.url or len(part.data or '')}"
        for part in parts
        if isinstance(part, MediaPart)
    ]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return [says("I see " + ", ".join([*media, *texts[1:]]))]


def _recall(prompt: Prompt) -> Sequence[Turn]:
    texts = [text_of(message.content) for message in prompt.messages if isinstance(message, UserMessage)]
    return [says("You said: " + " | ".join(texts))]


def _what_came_back(prompt: Prompt) -> Sequence[Turn]:
    """Deletes, and then repeats the tool's result."""
    return [calls(("delete_file", '{"name": "a.txt"}')), says(str(prompt.messages[-1].content))]


def _another_answer(_prompt: Prompt) -> Sequence[Turn]:
    return [says(f"Answer number {next(_answers)}.")]


_answers = count(1)

SCENES: dict[str, Scene] = {
    "answer me": _another_answer,
    "let me choose": [calls(("choose", '{"question": "Tea or coffee?"}')), says("Tea it is.")],
    "keep a note": [calls(("note", '{"text": "milk"}')), says("I kept it.")],
    "hello": [says("Hello there, how are you?", usage=USAGE)],
    "weather": [calls(("get_weather", '{"city": "Oslo"}')), says("It is 4 degrees in Oslo.")],
    "weather twice": [
        calls(("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"city": "Rome"}')),
        says("Rome is warmer."),
    ],
    "think aloud": [
        Turn(
            text=["Let me ", "look. "],
            calls=[ToolCall(id="c1", name="get_weather", arguments='{"city": "Rome"}')],
        ),
        says("Warm."),
    ],
    "break a tool": [calls(("broken", "{}")), says("The tool is broken.")],
    "misuse a tool": [calls(("get_weather", '{"town": 1}')), says("I asked wrongly.")],
    "show a picture": [calls(("take_picture", "{}")), says("Here it is.")],
    "reason": [Turn(reasoning=["Two ", "plus two…"], text=["Four", "."])],
    "reason and look": [
        Turn(reasoning=["I should look."], calls=[ToolCall(id="c1", name="get_weather", arguments='{"city": "Oslo"}')]),
        Turn(reasoning=["Cold."], text=["It is cold."]),
    ],
    "paint it blue": [calls(("change_background", '{"colour": "blue"}')), says("It is blue now.")],
    "paint and look": [
        calls(("change_background", '{"colour": "red"}'), ("get_weather", '{"city": "Rome"}')),
        says("Red, and warm."),
    ],
    "delete and repeat": _what_came_back,
    "delete it": [calls(("delete_file", '{"name": "a.txt"}')), says("As you wish.")],
    "delete and wait": [
        Turn(text=["First this."], calls=[ToolCall(id="c1", name="delete_file", arguments='{"name": "a.txt"}')]),
        Turn(text=["One moment"], pause=_forever),
    ],
    "delete both": [
        calls(("delete_file", '{"name": "a.txt"}'), ("delete_file", '{"name": "b.txt"}')),
        says("As you wish."),
    ],
    "fail": [Turn(text=["I was about to"], error=ModelUnreachable("The model cannot be reached.", started=True))],
    "fail at once": [Turn(error=ModelUnreachable("The model cannot be reached."))],
    "wait": [Turn(text=["One moment"], pause=_forever)],
    "stop me": [Turn(text=["One moment"], pause=_forever)],
    "speak slowly": [Turn(text=["One ", "two ", "three ", "four"], pause=_a_while)],
    "wait for a tool": [calls(("never_ends", "{}"))],
    "look at this": _what_is_seen,
    "say nothing": [Turn()],
    "talk on": [Turn(text=LONG_REPLY)],
    "unicode": [Turn(text=UNICODE)],
    "what did I say": _recall,
    "work": [calls(("work", "{}")), says("Done.")],
    "run out of tokens": [says("This is cut", finish_reason="length")],
    "go in circles": [calls(("get_weather", '{"city": "Oslo"}'))] * 5,
    "where am I": lambda prompt: [says(prompt.system)],
    "plan": [
        calls(("update_state", json.dumps({"patch": [{"op": "add", "path": "/steps/-", "value": "buy milk"}]}))),
        calls(("update_state", json.dumps({"patch": [{"op": "replace", "path": "/done", "value": True}]}))),
        says("Planned."),
    ],
    "plan badly": [
        calls(("update_state", json.dumps({"patch": [{"op": "remove", "path": "/nothing/here"}]}))),
        says("That did not work."),
    ],
    "write": [
        calls(("write_document", json.dumps({"document": "Once upon a time there was a 🦊 in a “forest”."}))),
        says("Written."),
    ],
}


class SceneModel:
    """Plays scenes. Says each provider event once, as models in debug mode do."""

    name = "scenes"

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        content = _last_user(prompt).content  # clients put files before or after the text
        words = content if isinstance(content, str) else next(p.text for p in content if isinstance(p, TextPart))
        text = words.partition("\n")[0]
        scene = SCENES.get(text, SCENES["hello"])
        turns = scene(prompt) if callable(scene) else scene
        turn = turns[min(_replies_since_user(prompt), len(turns) - 1)]
        if "work" in [call.name for call in turn.calls]:
            listener.raw({"provider": "scenes", "nothing": None})
        return await ScriptedModel([turn]).reply(prompt, InPieces(listener))

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        return None


def _last_user(prompt: Prompt) -> UserMessage:
    return next(message for message in reversed(prompt.messages) if isinstance(message, UserMessage))


def _replies_since_user(prompt: Prompt) -> int:
    since = prompt.messages[prompt.messages.index(_last_user(prompt)) :]
    return sum(isinstance(message, AssistantMessage) for message in since)


@dataclass
class InPieces:
    """Passes everything on, arguments a few characters at a time, as providers send them."""

    listener: Listener

    def __post_init__(self) -> None:
        self.text = self.listener.text
        self.reasoning = self.listener.reasoning
        self.call_started = self.listener.call_started
        self.call_ended = self.listener.call_ended
        self.call_answered = self.listener.call_answered
        self.warning = self.listener.warning
        self.raw = self.listener.raw
        self.timed_out_without_output = self.listener.timed_out_without_output

    def call_arguments(self, call_id: str, delta: str) -> None:
        for start in range(0, len(delta), 6):
            self.listener.call_arguments(call_id, delta[start : start + 6])


async def get_weather(city: str) -> dict[str, Any]:
    """The weather of a city."""
    return {"city": city, "celsius": 4 if city == "Oslo" else 22}


async def broken() -> str:
    """Never works."""
    raise OSError("the disk is full")


async def take_picture() -> ToolResult:
    """A picture."""
    return ToolResult(content=(TextPart("One pixel:"), MediaPart(mime_type="image/png", data=PIXEL)))


async def delete_file(name: str) -> str:
    """Deletes a file."""
    return f"{name} is deleted"


async def never_ends() -> str:
    """Takes for ever."""
    await _forever()
    return "never"


async def work(context: ToolContext) -> str:
    """Shows what it does."""
    context.emit(ActivityShown("activity-1", "work", {"done": 0, "note": "beginning"}))
    context.emit(ActivityPatched("activity-1", "work", [{"op": "replace", "path": "/done", "value": 100}]))
    context.emit(CustomSent("example.progress", {"percent": 100, "left": None}))
    return "worked"


async def write_document(document: str) -> str:
    """Writes a document."""
    return f"{len(document)} characters"


class SceneTools(FunctionToolset):
    """The functions above; deleting needs a person's approval."""

    def __init__(self) -> None:
        functions = (get_weather, broken, take_picture, delete_file, never_ends, work, write_document)
        super().__init__([FunctionTool.of(function) for function in functions])

    def schemas(self) -> Sequence[ToolSchema]:
        return [_with_approval(schema) for schema in super().schemas()]


def _with_approval(schema: ToolSchema) -> ToolSchema:
    if schema.name != "delete_file":
        return schema
    return ToolSchema(
        name=schema.name,
        description=schema.description,
        parameters=schema.parameters,
        approval=Approval.ALWAYS,
    )


def plain_agent() -> AgentDefinition:
    return AgentDefinition(
        name="scenes",
        description="Plays scenes",
        model=SceneModel(),
        tools=Catalogue.of(SceneTools()),
        instructions=TextInstructions("You play scenes."),
        loop=AgentLoopConfig(max_iterations=4),
    )


def agent_with_state() -> AgentDefinition:
    return AgentDefinition(
        name="scenes",
        model=SceneModel(),
        tools=Catalogue.of(SceneTools()),
        state=StateSettings(
            initial={"steps": [], "done": False, "document": ""},
            predict=[Prediction(state_key="document", tool="write_document", tool_argument="document")],
        ),
    )
