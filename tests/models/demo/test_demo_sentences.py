"""The table of sentences, each in a conversation of its own, through the port."""

import pytest

from tests.models.demo.demo_chat import Conversation
from tests.models.demo.sentences import CASES, COMPLETED, LIST, Case
from tests.models.demo.todo_double import TODO_TOOLS, TodoDouble


def conversation(case: Case) -> Conversation:
    todos = TodoDouble(case.now)
    for row in LIST:
        todos.create_todo(**row)
    for todo_id in COMPLETED:
        todos.update_todo(todo_id=todo_id, status="completed")
    return Conversation(todos.answer, TODO_TOOLS, case.now, case.zone)


def test_the_table_is_large() -> None:
    assert len({(case.sentence, case.before, case.zone) for case in CASES}) == len(CASES) >= 80


@pytest.mark.req("ORC-06")
@pytest.mark.parametrize("case", CASES, ids=lambda case: " / ".join((*case.before, case.sentence))[:70])
async def test_sentence(case: Case) -> None:
    talk = conversation(case)
    for sentence in case.before:
        await talk.say(sentence)
    calls, answer = await talk.say(case.sentence)
    assert tuple(calls) == case.calls
    assert [part for part in case.answer if part not in answer] == []
