"""The same conversations over every wire: every client receives the same."""

from dataclasses import dataclass
from typing import Any

import pytest

from holodeck.core.messages import UserMessage
from holodeck.core.tools import ToolResult
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelInterrupted, ModelRejected, ModelTimeout, ModelUnavailable, ModelUnreachable
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools, broken, echo
from tests.scenarios.wire_clients import CLIENTS, Call, Received, ordered
from tests.server.every_wire import SESSION
from tests.server.serving import served

EVERYTHING = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)


async def refuse(arguments: dict[str, Any], context: object) -> ToolResult:
    return ToolResult.failure("There is no such list.")


def tools() -> PlainTools:
    return PlainTools(echo=echo, broken=broken, refuse=refuse)


@dataclass
class Conversation:
    """What a user says, what the model does, and what every client has to receive after each sentence."""

    turns: list[Turn]
    received: list[Received]
    says: tuple[str, ...] = ("Hello",)


def usage(prompt: int, completion: int) -> TokenUsage:
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion)


def plain(text: str, *made: Call, **fields: Any) -> Received:
    return Received(answer=text, text=text, calls=ordered([*made]), **fields)


ECHOED = Call("echo", {"a": 1}, "success")
HOSTILE = 'two\nlines "quoted" \\ back\u2028slash 😀 data: x\r\n\r\nevent: done </script>'

CONVERSATIONS = {
    "a greeting": Conversation([says("Hello there, friend")], [plain("Hello there, friend")]),
    "text that looks like frames": Conversation([Turn(text=[HOSTILE[:9], HOSTILE[9:]])], [plain(HOSTILE)]),
    "a thought before the answer": Conversation([says("Yes", reasoning=["Hm", "m\n", "so"])], [plain("Yes")]),
    "what it cost": Conversation([says("ok", usage=usage(7, 3))], [plain("ok", usage=(7, 3))]),
    "a tool": Conversation([calls(("echo", '{"a": 1}')), says("done")], [plain("done", ECHOED)]),
    "tools side by side": Conversation(
        [calls(("echo", '{"a": 1}'), ("echo", '{"b": [2, "é"]}')), says("both")],
        [plain("both", ECHOED, Call("echo", {"b": [2, "é"]}, "success"))],
    ),
    "the cost of two model calls": Conversation(
        [calls(("echo", '{"a": 1}'), usage=usage(10, 5)), says("done", usage=usage(20, 6))],
        [plain("done", ECHOED, usage=(30, 11))],
    ),
    "words before and after a tool": Conversation(
        [calls(("echo", '{"a": 1}'), text=["Let me ", "see."]), says("There it is.")],
        [Received(answer="There it is.", text="Let me see.\n\nThere it is.", calls=(ECHOED,))],
    ),
    "a tool that refuses": Conversation(
        [calls(("refuse", "{}")), says("I could not.")], [plain("I could not.", Call("refuse", {}, "error"))]
    ),
    "a tool that breaks, beside one that does not": Conversation(
        [calls(("broken", "{}"), ("echo", '{"a": 1}')), says("half of it")],
        [plain("half of it", Call("broken", {}, "error"), ECHOED)],
    ),
    "a tool that does not exist": Conversation(
        [calls(("nothing", "{}")), says("sorry")], [plain("sorry", Call("nothing", {}, "error"))]
    ),
    "arguments that are no JSON, then better ones": Conversation(
        [calls(("echo", "{oops")), calls(("echo", '{"a": 1}')), says("now")],
        [plain("now", Call("echo", {"arguments": "{oops"}, "error"), ECHOED)],
    ),
    "a reply that is cut at its limit": Conversation(
        [says("and then the", finish_reason="length")], [plain("and then the")]
    ),
    "a model that never stops asking": Conversation(
        [calls(("echo", '{"a": 1}'), text=["Again."])],
        [Received(answer="Again.", text="\n\n".join(["Again."] * 15), calls=(ECHOED,) * 15)],
    ),
    "a model that cannot be reached": Conversation(
        [Turn(error=ModelUnreachable("no route"))], [Received(text="", error="model-error")]
    ),
    "a model that refuses the key": Conversation(
        [Turn(error=ModelRejected("bad key"))], [Received(text="", error="model-error")]
    ),
    "a model that is overloaded": Conversation(
        [Turn(error=ModelUnavailable("busy", retry_after=3))], [Received(text="", error="model-unavailable")]
    ),
    "a model that is too slow": Conversation([Turn(error=ModelTimeout("late"))], [Received(text="", error="timeout")]),
    "a model that breaks off": Conversation(
        [Turn(text=["Once", " upon"], error=ModelInterrupted("cut", started=True))],
        [Received(text="Once upon", error="model-error")],
    ),
    "a model that is stopped by its filter": Conversation(
        [says("I must not", finish_reason="content_filter")],
        [Received(text="I must not", error="model-error")],
    ),
    "a failure after a tool, then a second try": Conversation(
        [calls(("echo", '{"a": 1}')), Turn(error=ModelUnreachable("gone")), says("back again")],
        [Received(text="", calls=(ECHOED,), error="model-error"), plain("back again")],
        says=("Do it", "And now?"),
    ),
    "a conversation of three sentences": Conversation(
        [says("one"), calls(("echo", '{"a": 1}')), says("two"), says("three")],
        [plain("one"), plain("two", ECHOED), plain("three")],
        says=("first", "second", "third"),
    ),
}


@pytest.mark.req("SRV-05", "SRV-06", "SRV-08", "SRV-09", "ORC-02", "ORC-07", "SRV-17")
@pytest.mark.parametrize("wire", CLIENTS)
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_every_client_gets_the_same(name: str, wire: str) -> None:
    conversation = CONVERSATIONS[name]
    async with served(*conversation.turns, tools=tools(), settings=EVERYTHING) as s:
        for sentence, expected in zip(conversation.says, conversation.received, strict=True):
            assert await CLIENTS[wire].ask(s, sentence, SESSION) == CLIENTS[wire].part_of(expected)
        last = s.model.prompts[-1].messages
        assert [each.content for each in last if isinstance(each, UserMessage)] == [*conversation.says]


@pytest.mark.req("SRV-08", "SRV-15", "ORC-03")
async def test_a_session_continues_on_another_wire() -> None:
    """Each wire in turn, then the first again: the model is shown the whole conversation every time."""
    order = [*CLIENTS, "ag-ui sse"]
    async with served(*[says(f"answer {i}") for i in range(len(order))], settings=EVERYTHING) as s:
        for i, wire in enumerate(order):
            received = await CLIENTS[wire].ask(s, f"question {i}", SESSION)
            assert received.answer == f"answer {i}"
            shown = [message.content for message in s.model.prompts[-1].messages]
            assert shown == [text for n in range(i) for text in (f"question {n}", f"answer {n}")] + [f"question {i}"]
        async with s.get(f"/sessions/{SESSION}") as answer:
            assert (await answer.json())["message_count"] == 2 * len(order)


@pytest.mark.req("SRV-08", "SRV-09", "ORC-07")
@pytest.mark.parametrize("wire", CLIENTS)
async def test_a_tool_that_needs_approval_is_not_carried_out(wire: str) -> None:
    guarded = PlainTools(approval=frozenset({"echo"}), echo=echo)
    async with served(calls(("echo", '{"a": 1}'), text=["May I?"]), tools=guarded, settings=EVERYTHING) as s:
        received = await CLIENTS[wire].ask(s, "Do it", SESSION)
        assert guarded.called == []
        assert received == CLIENTS[wire].part_of(CLIENTS[wire].approval)
        assert received.calls or received.error or "approve" in (received.answer or ""), "the client learns of it"


@pytest.mark.req("SRV-17", "SRV-08", "FAC-07")
@pytest.mark.parametrize("wire", CLIENTS)
async def test_an_empty_reply_is_no_answer(wire: str) -> None:
    """The same failure on every wire: no client has to guess whether an empty text is an answer."""
    for silence in (Turn(), Turn(text=[" \n"]), Turn(reasoning=["Hm"])):
        async with served(silence, settings=EVERYTHING) as s:
            assert (await CLIENTS[wire].ask(s, "Hello", SESSION)).error == "model-error"


@pytest.mark.req("SRV-08")
@pytest.mark.parametrize("wire", CLIENTS)
async def test_an_empty_reply_after_tools_ran_is_an_answer_with_a_warning(wire: str) -> None:
    """The work is done: a client that takes it for a failure would do it twice."""
    async with served(calls(("echo", "{}")), Turn(), tools=PlainTools(echo=echo), settings=EVERYTHING) as s:
        received = await CLIENTS[wire].ask(s, "Do it", SESSION)
        assert (received.answer, received.error) == ("", None)
        assert [call.status for call in received.calls] == ([] if "calls" in CLIENTS[wire].never else ["success"])
    async with served(calls(("echo", "{}")), Turn(), tools=PlainTools(echo=echo), settings=EVERYTHING) as s:
        async with s.post({"message": "Do it"}, "/agent/tester/chat") as answer:
            result = await answer.json()
        assert (answer.status, result["content"], result["warning"]) == (200, "", "The model returned an empty answer.")


@pytest.mark.req("SRV-17")
async def test_a_problem_names_the_session_that_it_left_behind() -> None:
    async with served(Turn(error=ModelUnreachable("The model cannot be reached.")), settings=EVERYTHING) as s:
        async with s.post({"message": "Hello"}, "/agent/tester/chat") as answer:
            problem = await answer.json()
        assert answer.status == 502
        async with s.get(f"/sessions/{problem['session_id']}") as session:
            assert [message["content"] for message in (await session.json())["messages"]] == ["Hello"]
