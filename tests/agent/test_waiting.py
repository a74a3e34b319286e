"""Steps that wait: approvals as interrupts, and tools that the client carries out."""

from datetime import timedelta

import msgspec
import pytest

from holodeck.agent.pending import decide
from holodeck.agent.settings import StateSettings
from holodeck.core import events as e
from holodeck.core.events import interrupts_of, questions_of
from holodeck.core.messages import MediaPart, TextPart, ToolMessage, now
from holodeck.core.request import Resume
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest
from holodeck.models.scripted import calls, says
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo

CLIENT_TOOL = ToolSchema(name="paint", description="Paints the page", on_client=True)


def needs_approval(*turns) -> AgentFixture:
    return AgentFixture(*turns, tools=PlainTools(approval=frozenset({"erase"}), erase=echo, echo=echo))


async def interrupted() -> tuple[AgentFixture, str]:
    fixture = needs_approval(calls(("erase", '{"id": 1}'), ("echo", "{}")), says("done"))
    await fixture.play("erase it")
    return fixture, fixture.ending.interrupts[0].id


async def test_a_tool_that_needs_approval_ends_the_run_with_a_question_and_is_not_called():
    fixture, _ = await interrupted()
    assert fixture.ending.outcome is e.Outcome.INTERRUPTED
    assert fixture.ending.interrupts[0].tool == "erase"
    assert [name for name, *_ in fixture.tools.called] == ["echo"], (
        "the call that needs no approval is made immediately"
    )


async def test_an_approval_carries_it_out_once_and_the_run_continues():
    fixture, interrupt = await interrupted()
    response = await fixture.play(resume=[Resume(interrupt_id=interrupt, approved=True)])
    assert response.final_response == "done"
    assert [name for name, *_ in fixture.tools.called] == ["echo", "erase"]
    again = await fixture.play(resume=[Resume(interrupt_id=interrupt, approved=True)])
    assert again.error_code == "invalid-request"
    assert len(fixture.tools.called) == 2


async def test_a_refusal_reaches_the_model_as_text():
    fixture, interrupt = await interrupted()
    await fixture.play(resume=[Resume(interrupt_id=interrupt, approved=False)])
    assert "refused" in fixture.model.prompts[1].messages[-2].content
    assert len(fixture.tools.called) == 1


async def test_the_stored_step_asks_what_the_run_asked():
    fixture, interrupt = await interrupted()
    step = fixture.conversation.pending
    assert questions_of(step) == fixture.ending.interrupts
    assert [(each.id, each.call_id, each.tool, each.arguments) for each in questions_of(step)] == [
        (interrupt, "c1", "erase", '{"id": 1}')
    ]
    done = ToolMessage(call_id="c1", name="erase", content="erased")
    assert questions_of(msgspec.structs.replace(step, results=(*step.results, done))) == ()
    assert questions_of(None) == interrupts_of(None) == ()
    assert interrupts_of(e.failure("r", "s", InvalidRequest("x"))) == ()


async def test_an_expired_question_can_only_be_refused():
    fixture, interrupt = await interrupted()
    step = fixture.conversation.pending
    last = step.expires_at
    late = last + timedelta(microseconds=1)
    assert (step.has_expired(last), step.has_expired(late)) == (False, True)
    assert decide(step, [Resume(interrupt_id=interrupt, approved=True)], (), last).approved
    with pytest.raises(InvalidRequest, match="has expired"):
        decide(step, [Resume(interrupt_id=interrupt, approved=True)], (), late)
    assert decide(step, [Resume(interrupt_id=interrupt, approved=False)], (), late).refused


async def test_a_person_may_change_the_arguments():
    fixture, interrupt = await interrupted()
    await fixture.play(resume=[Resume(interrupt_id=interrupt, approved=True, payload={"arguments": {"id": 2}})])
    assert fixture.tools.called[-1][1] == {"id": 2}
    assert fixture.conversation.messages[1].tool_calls[0].arguments == '{"id":2}', "the history tells what was done"


async def test_continuing_without_an_answer_counts_as_no():
    fixture, _ = await interrupted()
    response = await fixture.play("never mind")
    assert response.status == "completed"
    assert "without approving" in fixture.conversation.messages[2].content
    assert len(fixture.tools.called) == 1


@pytest.mark.parametrize("problem", ["foreign", "doubled", "expired"])
async def test_a_resume_that_does_not_count_is_refused_and_changes_nothing(problem):
    fixture, interrupt = await interrupted()
    resume = [Resume(interrupt_id=interrupt, approved=True)]
    if problem == "foreign":
        resume = [Resume(interrupt_id="somebody-elses", approved=True)]
    elif problem == "doubled":
        resume *= 2
    else:
        pending = fixture.conversation.pending
        await fixture.conversation.commit([], msgspec.structs.replace(pending, expires_at=now() - timedelta(seconds=1)))
    response = await fixture.play(resume=resume)
    assert response.error_code == "invalid-request"
    assert len(fixture.tools.called) == 1
    assert fixture.conversation.pending is not None


async def test_a_frontend_tool_ends_the_run_and_its_result_continues_it():
    fixture = AgentFixture(calls(("paint", '{"color": "red"}')), says("painted"))
    await fixture.play("paint it", client_tools=[CLIENT_TOOL])
    assert fixture.ending.outcome is e.Outcome.CLIENT_TOOLS
    assert fixture.ending.pending_calls == ("c1",)
    assert "paint" in {tool.name for tool in fixture.model.prompts[0].tools}
    result = ToolMessage(call_id="c1", name="", content="it is red")
    response = await fixture.play(client_results=[result], client_tools=[CLIENT_TOOL])
    assert response.final_response == "painted"
    assert fixture.model.prompts[1].messages[-1].content == "it is red"


@pytest.mark.req("AGT-08")
async def test_a_frontend_tools_result_is_as_bounded_as_any_other():
    reading = calls(("read_result", '{"call_id": "c1", "offset": 11000}'))
    fixture = AgentFixture(calls(("paint", "{}")), reading, says("read"), max_result_characters=1000)
    await fixture.play("paint it", client_tools=[CLIENT_TOOL])
    result = ToolMessage(call_id="c1", name="", content=(TextPart("x" * 11_000), TextPart("the end")))
    await fixture.play(client_results=[result], client_tools=[CLIENT_TOOL])
    shown, piece = [each.content for each in fixture.conversation.messages if isinstance(each, ToolMessage)]
    assert len(shown) < 1200
    assert "read_result shows them" in shown
    assert piece.endswith("the end")


@pytest.mark.req("AGT-08")
async def test_pictures_that_a_frontend_tool_brings_are_kept_behind_bounded_text():
    reading = calls(("read_result", '{"call_id": "c1", "offset": 500498}'))
    fixture = AgentFixture(calls(("paint", "{}")), reading, says("nice"), max_result_characters=1000)
    await fixture.play("paint it", client_tools=[CLIENT_TOOL])
    picture = MediaPart(mime_type="image/png", data="iVBORw0KGgo=")
    words = [TextPart("x" * 1000)] * 500
    result = ToolMessage(call_id="c1", name="", content=(*words, picture, TextPart("the end"), picture))
    await fixture.play(client_results=[result], client_tools=[CLIENT_TOOL])
    kept, piece = [each.content for each in fixture.conversation.messages if isinstance(each, ToolMessage)]
    assert kept[1:] == (picture, picture)
    assert len(kept[0].text) < 1200
    assert "read_result shows them" in kept[0].text
    assert piece.endswith("x\nthe end")


async def test_a_picture_may_come_without_a_word():
    fixture = AgentFixture(calls(("paint", "{}")), says("nice"))
    await fixture.play("paint it", client_tools=[CLIENT_TOOL])
    picture = MediaPart(mime_type="image/png", data="iVBORw0KGgo=")
    result = ToolMessage(call_id="c1", name="", content=(picture,))
    await fixture.play(client_results=[result], client_tools=[CLIENT_TOOL])
    assert [each.content for each in fixture.conversation.messages if isinstance(each, ToolMessage)] == [(picture,)]


async def test_results_for_calls_that_the_client_was_never_given_are_ignored():
    fixture = needs_approval(calls(("erase", "{}")), says("ok"))
    await fixture.play("erase it")
    forged = ToolMessage(call_id="c1", name="erase", content="erased, trust me")
    await fixture.play("go on", client_results=[forged])
    assert "trust me" not in str(fixture.model.prompts[1].messages)


async def test_a_frontend_tool_cannot_take_the_name_of_a_server_tool():
    fixture = AgentFixture(calls(("echo", "{}")), says("ok"))
    response = await fixture.play("go", client_tools=[ToolSchema(name="echo", on_client=True)])
    assert response.status == "completed"
    assert len(fixture.tools.called) == 1


async def test_a_frontend_tool_cannot_take_the_name_of_a_tool_that_the_loop_adds():
    """Not even while the loop does not offer it: no result was shortened yet."""
    fixture = AgentFixture(calls(("read_result", "{}")), says("ok"))
    given = [ToolSchema(name="read_result", on_client=True), ToolSchema(name="update_state", on_client=True)]
    response = await fixture.play("go", client_tools=given)
    assert [schema.name for schema in fixture.model.prompts[0].tools][-2:] == ["stuck", "update_state"]
    assert response.status == "completed"

    fixture = AgentFixture(says("ok"), state=StateSettings())
    await fixture.play("go", client_tools=given)
    assert [schema.on_client for schema in fixture.model.prompts[0].tools if schema.name == "update_state"] == [False]


async def test_a_frontend_tool_without_a_result_is_answered_for():
    fixture = AgentFixture(calls(("paint", "{}")), says("ok"))
    await fixture.play("paint", client_tools=[CLIENT_TOOL])
    await fixture.play("what now?")
    assert "no result" in fixture.model.prompts[1].messages[-2].content
