"""The demo model behind the port: how it streams, what it remembers, and what it does with tools that fail or lack."""

import asyncio
import json
import re
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.core.tools import Approval, ToolSchema
from holodeck.core.zones import local_zone
from holodeck.models.demo.model import DemoModel
from holodeck.models.port import Model, Prompt
from tests.examples import examples
from tests.models.demo.demo_chat import Conversation, Ear
from tests.models.demo.sentences import NOW
from tests.models.demo.todo_double import TODO_TOOLS, TodoDouble


def fails(call: ToolCall) -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, content="The database is away.", failed=True)


def new_conversation(**changes: Any) -> Conversation:
    return Conversation(**{"answer": TodoDouble(NOW).answer, "tools": TODO_TOOLS, "now": NOW, **changes})


async def test_it_is_a_model() -> None:
    model: Model = DemoModel()
    await model.check()
    await model.close()
    assert model.name == "demo"


async def test_words_come_one_by_one_and_let_others_run() -> None:
    seen: list[int] = []
    ear = Ear()

    async def watch() -> None:
        while True:
            seen.append(len(ear.words))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    reply = await DemoModel(clock=lambda: NOW).reply(Prompt(messages=[UserMessage(content="hello")]), ear)
    watching.cancel()
    assert len(ear.words) == len(reply.text.split())
    assert len(set(seen)) > len(ear.words) / 2


async def test_a_stop_when_the_last_word_is_due_is_no_error() -> None:
    """It would be an error in the log of the server: the last word ends a wait that has ended already."""
    ear, loop = Ear(), asyncio.get_running_loop()
    errors: list[Any] = []
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    prompt = Prompt(messages=[UserMessage(content="hello")])
    model = DemoModel(clock=lambda: NOW)
    total = len((await model.reply(prompt, Ear())).text.split())

    def stop_at_last(delta: str) -> None:
        ear.words.append(delta)
        if len(ear.words) == total:
            loop.call_later(0, replying.cancel)

    ear.text = stop_at_last  # type: ignore[method-assign]
    replying = asyncio.create_task(model.reply(prompt, ear))
    await asyncio.wait({replying})
    assert (replying.cancelled(), errors) == (True, [])


async def test_arguments_come_in_pieces() -> None:
    ear = Ear()
    message = UserMessage(content="Remind me to buy eggs tomorrow at 3pm, urgent #home")
    reply = await DemoModel(clock=lambda: NOW).reply(Prompt(messages=[message], tools=TODO_TOOLS), ear)
    (call,) = reply.tool_calls
    assert len(ear.pieces[call.id]) > 2
    assert call.id.startswith("call_")
    assert "user_id" not in json.loads(call.arguments)


async def test_the_delay_is_kept_between_words() -> None:
    started = asyncio.get_running_loop().time()
    ear = Ear()
    await DemoModel(delay=0.005, clock=lambda: NOW).reply(Prompt(messages=[UserMessage(content="thanks")]), ear)
    assert asyncio.get_running_loop().time() - started >= 0.005 * len(ear.words)


async def test_cancelling_stops_it_at_once() -> None:
    ear = Ear()
    slow = DemoModel(delay=60, clock=lambda: NOW).reply(Prompt(messages=[UserMessage(content="hello")]), ear)
    task = asyncio.create_task(slow)
    while not ear.words:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(ear.words) == 1


async def test_an_empty_prompt_is_greeted() -> None:
    reply = await DemoModel().reply(Prompt(), Ear())
    assert reply.text.startswith("Hello")


async def test_a_picture_alone_is_answered_politely() -> None:
    talk = new_conversation()
    calls, answer = await talk.say((MediaPart(mime_type="image/png", data="aGk="),))
    assert (calls, "only read words" in answer) == ([], True)


async def test_words_beside_a_picture_count() -> None:
    talk = new_conversation()
    calls, _ = await talk.say((TextPart("add buy paint"), MediaPart(mime_type="image/png", data="aGk=")))
    assert calls == [("create_todo", {"title": "Buy paint"})]


async def test_a_file_is_no_request_and_its_text_no_sentence() -> None:
    talk = new_conversation()
    _, reply = await talk.say((TextPart("hello"), TextPart("notes.txt:\nadd buy paint")))
    assert reply.startswith("Hello! I am HoloDeck's demo model")
    calls, reply = await talk.say((TextPart("what does it say?"), TextPart("notes.txt:\nadd buy paint")))
    assert (calls, reply.startswith("Your file arrived, but I do not read files")) == ([], True)


async def test_an_empty_list() -> None:
    _, answer = await new_conversation().say("what's on my list?")
    assert "empty" in answer


@pytest.mark.req("ORC-07")
async def test_a_failing_tool_is_reported() -> None:
    _, answer = await new_conversation(answer=fails).say("add milk")
    assert answer == "That did not work. The tool says: The database is away."


async def test_a_todo_that_vanished_meanwhile() -> None:
    todos = TodoDouble(NOW)
    talk = new_conversation(answer=todos.answer)
    await talk.say("add milk")
    todos.rows.clear()
    calls, answer = await talk.say("mark it as done")
    assert calls == [("update_todo", {"todo_id": "t1", "status": "completed"})]
    assert "no todo 't1'" in answer


async def test_plain_text_of_a_foreign_tool_is_passed_on() -> None:
    def plain(call: ToolCall) -> ToolMessage:
        return ToolMessage(call_id=call.id, name=call.name, content="Task 5 noted.")

    _, answer = await new_conversation(answer=plain).say("add milk")
    assert answer == "Task 5 noted."


async def test_without_todo_tools_it_names_those_that_are_there() -> None:
    calls, answer = await new_conversation(tools=[ToolSchema(name="convert")]).say("add milk")
    assert calls == []
    assert "No todo tools are connected" in answer
    assert "`convert`" in answer


@pytest.mark.parametrize("words", ["hello", "help", "what is love?", "add milk", "buy eggs", "yes", "bye", "x" * 700])
async def test_without_tools_it_offers_no_todos(words: str) -> None:
    calls, answer = await new_conversation(tools=[]).say(words)
    assert calls == []
    assert not re.search("todo|list", answer)
    assert "no tools" in answer or words in ("yes", "bye")


@pytest.mark.parametrize(
    ("offered", "can"),
    [
        (("list_todos",), 'I can show your todos. Try, for example:\n\n- "What\'s on my list this week?"'),
        (("delete_todo", "list_todos"), "I can show your todos and delete them. Try"),
        (("delete_todo",), "I can delete your todos."),
        (("create_todo", "update_todo"), "tags, change them and tick them off. Try"),
    ],
)
async def test_it_offers_what_the_offered_todo_tools_can_do(offered: tuple[str, ...], can: str) -> None:
    tools = [tool for tool in TODO_TOOLS if tool.name in offered]
    _, answer = await new_conversation(tools=tools).say("hello")
    assert can in answer


async def test_a_tool_that_was_left_out_is_named() -> None:
    talk = new_conversation(tools=TODO_TOOLS[:2])
    await talk.say("add milk")
    calls, answer = await talk.say("make it urgent")
    assert (calls, "`update_todo`" in answer) == ([], True)


async def test_a_deletion_that_the_runtime_has_approved_is_not_asked_twice() -> None:
    approved = [ToolSchema(name=tool.name, approval=Approval.ALWAYS) for tool in TODO_TOOLS]
    talk = new_conversation(tools=approved)
    await talk.say("add milk")
    calls, answer = await talk.say("delete it")
    assert calls == [("delete_todo", {"todo_id": "t1", "confirmation": True})]
    assert answer == "Deleted **Milk**."


async def test_the_prompts_zone_is_used_and_a_wrong_one_is_not() -> None:
    for zone, expected in (("Asia/Kolkata", "+05:30"), ("Middle/Earth", None), (None, None)):
        calls, _ = await new_conversation(zone=zone).say("add milk tomorrow at noon")
        offset = NOW.astimezone(ZoneInfo(local_zone())).strftime("%z") if expected is None else expected
        due = calls[0][1]["due_date"]
        assert due.endswith(offset if ":" in offset else f"{offset[:3]}:{offset[3:]}")


async def test_another_models_turns_are_remembered_too() -> None:
    """The demo model may be the fallback of a real one and take over in the middle of a conversation."""
    todos = TodoDouble(NOW)
    talk = new_conversation(answer=todos.answer)
    call = ToolCall(id="c1", name="create_todo", arguments='{"title":"Gift for Ann"}')
    talk.messages += [
        UserMessage(content="Ann has her birthday soon, think of something"),
        AssistantMessage(tool_calls=(call,)),
        todos.answer(call),
        AssistantMessage(content="I noted a gift for Ann. Shall I delete anything?"),
    ]
    calls, answer = await talk.say("make it urgent")
    assert calls == [("update_todo", {"todo_id": "t1", "priority": "high"})]
    assert "Gift for Ann" in answer


async def test_only_its_own_question_takes_a_yes() -> None:
    talk = new_conversation()
    talk.messages += [UserMessage(content="delete milk"), AssistantMessage(content="Really?")]
    assert "no question open" in (await talk.say("yes"))[1]


async def test_a_long_conversation_stays_quick() -> None:
    talk = new_conversation()
    for number in range(60):
        talk.messages += [UserMessage(content=f"add thing {number} tomorrow"), AssistantMessage(content="…")]
    started = asyncio.get_running_loop().time()
    await talk.say("show my list")
    assert asyncio.get_running_loop().time() - started < 2


WORDS = (
    *(
        "add",
        "show",
        "delete",
        "mark",
        "make",
        "it",
        "the",
        "first",
        "2",
        "one",
        "all",
        "and",
        "then",
        "to",
        "by",
        "on",
    ),
    *("friday", "tomorrow", "at 3pm", "urgent", "#home", "tag", "as", "done", "my list", "what's", "is", "not", "due"),
    *(
        "rename",
        "milk",
        "yes",
        "no",
        "move",
        "remove",
        "in half an hour",
        "priority",
        "'",
        '"',
        ",",
        ".",
        "!!!",
        "?",
        "both",
    ),
)


@examples(30)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join) | st.text(), min_size=1, max_size=6)
)
def test_any_message_gets_an_answer(messages: list[str]) -> None:
    async def talk() -> list[str]:
        conversation = new_conversation()
        return [(await conversation.say(message))[1] for message in ("add milk", "add more milk", *messages)]

    assert all(asyncio.run(talk()))


HOSTILE = (
    "add - ",
    "add , ",
    "tag it a and ",
    "mark 1 and 1 ",
    "move at 3 ",
    "show #a ",
    "remind me ",
    "send 'a \"b ",
    "x=[{ ",
)


@pytest.mark.parametrize("words", HOSTILE)
async def test_a_hostile_message_is_answered_in_bounded_time(words: str) -> None:
    """Backtracking without a bound would run into the timeout of the test."""
    tools = (*TODO_TOOLS, ToolSchema(name="x", parameters={"properties": {"x": {"type": "array"}}}))
    _, answer = await new_conversation(tools=tools).say((words * 600)[:598] + "\0")
    assert answer
