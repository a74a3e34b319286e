"""Shared state: snapshots, patches by the model, and prediction while an argument streams."""

import msgspec
import pytest

from holodeck.agent import prediction
from holodeck.agent.emitter import RunEmitter
from holodeck.agent.prediction import Predictor, argument_so_far
from holodeck.agent.settings import Prediction, StateSettings
from holodeck.core import events as e
from holodeck.core.json_patch import PatchBudget, PatchError, apply_patch
from holodeck.core.messages import ToolCall
from holodeck.models.port import ModelReply
from holodeck.models.scripted import calls, says
from holodeck.tools.port import ToolContext
from holodeck.tools.shared_state import SharedState
from holodeck.wires.agui.encode import encoder_for
from holodeck.wires.agui.profile import Profile
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo

PROTOBUF = "application/vnd.ag-ui.event+proto"
PATCH = '{"patch": [{"op": "replace", "path": "/count", "value": 2}]}'


@pytest.mark.req("SRV-05")
async def test_the_state_is_shown_at_the_start_and_changes_go_out_as_patches():
    fixture = AgentFixture(calls(("update_state", PATCH)), says("changed"), state=StateSettings(initial={"count": 1}))
    await fixture.play("count")
    assert fixture.emitted(e.StateReplaced)[0].state == {"count": 1}
    assert fixture.emitted(e.StatePatched)[0].patch == [{"op": "replace", "path": "/count", "value": 2}]
    assert fixture.conversation.state == {"count": 2}
    assert '{"count":1}' in fixture.model.prompts[0].system


async def test_a_patch_that_does_not_fit_changes_nothing_and_shows_the_whole_state_again():
    bad = '{"patch": [{"op": "replace", "path": "/count", "value": 5}, {"op": "remove", "path": "/none"}]}'
    fixture = AgentFixture(calls(("update_state", bad)), says("sorry"), state=StateSettings(initial={"count": 1}))
    await fixture.play("count")
    assert [event.state for event in fixture.emitted(e.StateReplaced)] == [{"count": 1}, {"count": 1}]
    assert fixture.emitted(e.StatePatched) == []
    assert fixture.emitted(e.ToolFinished)[0].failed


async def test_the_clients_state_is_taken_up():
    fixture = AgentFixture(says("ok"), state=StateSettings(initial={"count": 1}))
    await fixture.play("count", state={"count": 40})
    assert fixture.emitted(e.StateReplaced)[0].state == {"count": 40}


@pytest.mark.req("SRV-22")
async def test_an_argument_is_predicted_while_it_streams():
    class Writer:
        name = "writer"

        async def reply(self, prompt, listener):
            if prompt.messages[-1].content != "write":
                return ModelReply(text="")
            whole = '{"document": "Once upon a time\\nthere was", "title": "T"}'
            listener.call_started("w", "write")
            for i in range(0, len(whole), 3):
                listener.call_arguments("w", whole[i : i + 3])
            call = ToolCall(id="w", name="write", arguments=whole)
            listener.call_ended(call)
            return ModelReply(tool_calls=(call,))

        async def close(self):
            return None

    state = StateSettings(predict=[Prediction(state_key="document", tool="write", tool_argument="document")])
    fixture = AgentFixture(says("unused"), tools=PlainTools(write=echo), state=state)
    object.__setattr__(fixture.agent, "model", Writer())
    await fixture.play("write")
    predicted = fixture.emitted(e.CustomSent)[0]
    assert (predicted.name, predicted.value[0]["tool_argument"]) == ("PredictState", "document")
    values = [event.patch[0]["value"] for event in fixture.emitted(e.StatePatched)]
    assert values[-1] == "Once upon a time\nthere was"
    assert len(values) > 5
    assert all(values[-1].startswith(value) for value in values)


@pytest.mark.req("SRV-22")
@pytest.mark.parametrize(
    "arguments", ['{"plan": ["' + "step " * 2000 + '"]}', '{"a": "' + "b" * 10_000 + '", "plan": "c"}']
)
def test_an_argument_that_cannot_be_shown_yet_is_looked_for_now_and_then_not_with_every_piece(monkeypatch, arguments):
    looks = []

    def counted(text, argument):
        looks.append(len(text))
        return argument_so_far(text, argument)

    monkeypatch.setattr(prediction, "argument_so_far", counted)
    received = []
    emitter = RunEmitter(received.append, run_id="r", session_id="s")
    predictor = Predictor(emitter, [Prediction(state_key="plan", tool="write", tool_argument="plan")])
    predictor.call_started("w", "write")
    for start in range(0, len(arguments), 4):
        predictor.call_arguments("w", arguments[start : start + 4])
    predictor.call_ended(ToolCall(id="w", name="write", arguments=arguments))
    assert sum(looks) < 30 * len(arguments)
    assert [event.patch[0]["path"] for event in received if isinstance(event, e.StatePatched)][-1] == "/plan"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"doc": "ab', "ab"),
        ('{"doc": "ab\\', "ab"),
        ('{"doc": "a\\u00e', "a"),
        ('{"doc": "a\\ud83d\\ude0', "a"),  # never half an emoji
        ('{"other": 1, "doc" : "x"}', "x"),
        ('{"doc": [1, 2', None),
        ('{"doc": [1, 2]', [1, 2]),
        ('{"do', None),
        ("", None),
        (r'{"doc": "a \ud83e\udd8a', "a 🦊"),
    ],
)
def test_argument_so_far(text, expected):
    assert argument_so_far(text, "doc") == expected


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
        ({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ],
)
def test_patches_that_fit(document, patch, expected):
    assert apply_patch(document, patch) == expected


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "remove", "path": "/x"}],
        [{"op": "replace", "path": "/x", "value": 1}],
        [{"op": "add", "path": "/a/5", "value": 1}],
        [{"op": "add", "path": "/a/01", "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "explode", "path": "/a"}],
        [{"op": "test", "path": "/t", "value": 1}],
        [{"op": "move", "from": "/o", "path": "/o/p"}],
        [{"op": "add", "path": "/t/x", "value": 1}],
    ],
)
def test_patches_that_do_not_fit_change_nothing(patch):
    document = {"a": [1], "t": True, "o": {"p": 1}}
    with pytest.raises(PatchError):
        apply_patch(document, [{"op": "add", "path": "/new", "value": 1}, *patch])
    assert document == {"a": [1], "t": True, "o": {"p": 1}}


DOUBLING = [{"op": "copy", "from": "", "path": f"/x{number}"} for number in range(100)]
BIG = {"text": "x" * 200_000, "list": list(range(20_000))}


@pytest.mark.req("T18", "T26")
@pytest.mark.parametrize(
    "patch",
    [
        DOUBLING,
        [{"op": "copy", "from": "/text", "path": f"/{number}"} for number in range(100)],
        [{"op": "copy", "from": "/list", "path": f"/{number}"} for number in range(100)],
        [{"op": "test", "path": "/list", "value": BIG["list"]}] * 100,
        [{"op": "replace", "path": "/text", "value": "y" * 100_000}] * 100,
    ],
    ids=["root", "text", "list", "test", "replace"],
)
def test_a_patch_that_multiplies_is_stopped_while_it_is_applied(patch):
    budget = PatchBudget()
    with pytest.raises(PatchError, match="together copy or compare too much"):
        apply_patch(BIG, patch, budget)
    assert budget.spent_values <= 200_000
    assert budget.spent_bytes <= 2_000_000


def test_moving_costs_nothing_and_large_states_can_be_changed():
    back_and_forth = [
        {"op": "move", "from": "/list", "path": "/other"},
        {"op": "move", "from": "/other", "path": "/list"},
    ]
    assert apply_patch(BIG, back_and_forth * 50) == BIG
    assert (
        apply_patch(BIG, [{"op": "add", "path": f"/list/{i}", "value": "new"} for i in range(100)])["list"][99] == "new"
    )


@pytest.mark.req("T18")
async def test_a_state_that_nests_too_deep_is_refused():
    toolset = SharedState({}, lambda _event: None)
    context = ToolContext(user_id="a")
    nest = {"patch": [{"op": "copy", "from": "", "path": "/x"}] * 40}
    assert not (await toolset.call("update_state", nest, context)).failed
    refused = await toolset.call("update_state", nest, context)
    assert refused.failed
    assert "deeper than 64 levels" in refused.text


NESTED = {500: "[" * 500 + "]" * 500, 100_000: "[" * 100_000 + "]" * 100_000}


@pytest.mark.req("T18")
@pytest.mark.parametrize("depth", NESTED)
async def test_a_predicted_argument_that_nests_too_deep_is_refused_and_the_run_continues(depth):
    predicted = StateSettings(initial={}, predict=[Prediction(state_key="plan", tool="echo", tool_argument="plan")])
    arguments = f'{{"plan": {NESTED[depth]}}}'
    fixture = AgentFixture(calls(("echo", arguments)), says("sorry"), state=predicted)
    response = await fixture.play("write a plan")
    assert (response.status, response.final_response) == ("completed", "sorry")
    encoder = encoder_for(PROTOBUF, Profile.FULL, "r")
    assert encoder.encode_many(enumerate(fixture.events))
    assert fixture.tools.called == []


@pytest.mark.req("T18")
async def test_a_patch_of_more_operations_than_the_check_counts_is_refused():
    many = [{"op": "add", "path": "/items/0", "value": 0}, {"op": "remove", "path": "/items/0"}] * 10_000
    arguments = msgspec.json.encode({"patch": many}).decode()
    fixture = AgentFixture(
        calls(("update_state", arguments)), says("sorry"), state=StateSettings(initial={"items": []})
    )
    await fixture.play("count")
    assert fixture.emitted(e.StatePatched) == []
    (refused,) = fixture.emitted(e.ToolFinished)
    assert refused.failed
    assert "at most 100 operations" in refused.content
