"""Any run the grammar allows, as a task and its updates: what a stream adds up to is what the task says."""

import json
from typing import Any

import pytest
from hypothesis import given

from holodeck.core import events as e
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.wires.a2a import v03
from holodeck.wires.a2a.request import camel_case, list_request, push_config, send_request
from holodeck.wires.a2a.task import INPUT_REQUIRED, TERMINAL, TaskEncoder, TaskReader
from tests.examples import examples
from tests.wires.event_sequences import JSON, NAMED, OBJECTS, event_sequences
from tests.wires.sse_parsers import whatwg

RELAXED = examples(25)
Json = dict[str, Any]


def reader() -> TaskReader:
    return TaskReader("task-1", "thread-1", "run-1")


def updates(events: list[e.Event]) -> list[Json]:
    stream = TaskEncoder(reader(), lambda update: update).encode_many(enumerate(events))
    return [json.loads(frame.data) for frame in whatwg(stream)]


def added_up(received: list[Json]) -> dict[str, list[Json]]:
    """The artifacts as a client has them in the end."""
    artifacts: dict[str, list[Json]] = {}
    for update in [each["artifactUpdate"] for each in received if "artifactUpdate" in each]:
        artifact = update["artifact"]
        if update["append"]:
            (known,) = artifacts[artifact["artifactId"]]
            (more,) = artifact["parts"]
            artifacts[artifact["artifactId"]] = [{"text": known["text"] + more["text"]}]
        else:
            artifacts[artifact["artifactId"]] = artifact["parts"]
    return artifacts


@given(events=event_sequences())
@RELAXED
def test_a_stream_adds_up_to_the_task(events: list[e.Event]) -> None:
    output, read = updates(events), reader()
    for event in events:
        read.read(event)
    whole = {each["artifactId"]: each["parts"] for each in read.artifacts.values()}
    assert added_up(output) == json.loads(json.dumps(whole))
    states = [each["statusUpdate"]["status"]["state"] for each in output if "statusUpdate" in each]
    assert "statusUpdate" in output[-1], "no text comes after the ending"
    assert states[-1] == read.status["state"]
    assert states[-1] in TERMINAL | {INPUT_REQUIRED}
    assert not any(state in TERMINAL for state in states[:-1])
    if states[-1] == "TASK_STATE_COMPLETED":
        assert "message" not in output[-1]["statusUpdate"]["status"], "some clients would take it for the answer"


@given(events=event_sequences())
@RELAXED
def test_the_same_in_the_words_of_0_3(events: list[e.Event]) -> None:
    output = [v03.update(each) for each in updates(events)]
    assert {each["kind"] for each in output} <= {"status-update", "artifact-update"}
    assert [each.get("final", False) for each in output] == [False] * (len(output) - 1) + [True]
    for each in output:
        assert "TASK_STATE" not in json.dumps(each.get("status", {}).get("state", ""))


@given(body=OBJECTS | JSON.map(lambda value: {"message": value}))
@examples(60)
def test_whatever_is_sent(body: Json) -> None:
    for read in (
        lambda given: send_request(given, 100),
        list_request,
        push_config,
        lambda given: v03.params_of("message/send", given),
    ):
        assert _status(lambda given, read=read: read(camel_case(given)), body) in {None, 400, 413, 415, 422}


def _status(read: Any, body: Json) -> int | None:
    try:
        read(body)
    except HoloDeckError as error:
        return error.status
    return None


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("plain_text", "TASK_STATE_COMPLETED"),
        ("approval", "TASK_STATE_INPUT_REQUIRED"),
        ("stopped", "TASK_STATE_CANCELED"),
        ("failed", "TASK_STATE_FAILED"),
        ("frontend_tool", "TASK_STATE_INPUT_REQUIRED"),
    ],
)
def test_states(name: str, state: str) -> None:
    assert updates(NAMED[name])[-1]["statusUpdate"]["status"]["state"] == state


def test_a_question_has_words_and_data() -> None:
    words, data = updates(NAMED["approval"])[-1]["statusUpdate"]["status"]["message"]["parts"]
    assert words["text"] == 'May I delete todo 7? (delete_todo {"id": 7})'
    assert (data["data"]["interruptId"], data["data"]["arguments"]) == ("i1", {"id": 7})


def test_files_of_tools_are_artifacts() -> None:
    files = [parts for parts in added_up(updates(NAMED["parallel_calls_one_fails"])).values() if "raw" in parts[0]]
    assert files == [[{"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "pixel.png"}]]


def test_names_of_protobuf_are_taken_but_not_those_of_the_client() -> None:
    given_names = {"history_length": 1, "message": {"task_id": "t", "parts": [{"data": {"my_key": 1}}]}}
    assert camel_case(given_names) == {
        "historyLength": 1,
        "message": {"taskId": "t", "parts": [{"data": {"my_key": 1}}]},
    }


@pytest.mark.req("T15")
def test_only_names_of_the_protocol_are_converted() -> None:
    """Two names of 1.8 MB, `a_ba_b…`, held the event loop for 4.6 s, and 49,000 short ones for 1 s."""
    given_names: dict[str, Any] = {"a_b" * 1000: 1, "x_y": {"message_id": "m", "z_": [{"mime_type": "a/b"}]}}
    assert camel_case(given_names) == {"a_b" * 1000: 1, "x_y": {"messageId": "m", "z_": [{"mimeType": "a/b"}]}}


def decision(*, approved: bool) -> dict[str, Any]:
    return {"interruptId": "i1", "approved": approved}


@pytest.mark.parametrize(
    "part",
    [
        {"data": decision(approved=False), "data_": decision(approved=True)},
        {"data": decision(approved=False), "data__": decision(approved=True)},
    ],
)
def test_a_member_that_is_no_name_of_protobuf_does_not_replace_a_decision(part: dict[str, Any]) -> None:
    (kept,) = camel_case({"message": {"parts": [part]}})["message"]["parts"]
    assert kept["data"] == decision(approved=False)


def test_a_name_in_both_spellings_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a name twice"):
        camel_case({"message": {"taskId": "t", "task_id": "u"}})
