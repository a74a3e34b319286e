"""The real @ag-ui/client 1.0.0, over server-sent events and over protobuf: what it has in the end, and that it never complains."""

import json

import pytest

from tests.clients.driving import Json, conversation, events, kinds, node
from tests.clients.plain_http import get, request, until
from tests.clients.scenarios import NOT_READ_AGAIN, PARTS, PLAIN, STATE, scenarios
from tests.clients.scenes import LONG_REPLY, PIXEL, UNICODE

CONTENT_TYPES = {"sse": "text/event-stream", "proto": "application/vnd.ag-ui.event+proto"}
WITHOUT_AN_ENDING = {"abort", "leave and come back", "foreign resume"}  # the client left; there never was a run

Played = dict[str, list[Json]]


@pytest.fixture(scope="module", params=CONTENT_TYPES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def played(wire: str, addresses: dict[str, str]) -> Played:
    """All scenarios over one wire, in one process: the runs of each by its name."""
    received = node("agui_driver.mjs", scenarios=list(scenarios(addresses, wire, "full", replay=("sse", "proto"))))
    return {result["name"]: result["runs"] for result in received}


@pytest.mark.req("SRV-05", "SRV-06")
@pytest.mark.parametrize("name", sorted({*PLAIN, *STATE} - WITHOUT_AN_ENDING))
def test_client_takes_the_whole_stream_without_a_warning(played: Played, wire: str, name: str) -> None:
    for run in played[name]:
        assert run["warnings"] == []
        assert (run["outcome"], run.get("error")) == ("resolved", None)
        assert run["http"] == {"status": 200, "contentType": CONTENT_TYPES[wire]}
        assert kinds(run)[0] == "RUN_STARTED"
        assert kinds(run)[-1] in ("RUN_FINISHED", "RUN_ERROR")
        assert run["events"][0]["protocolVersion"] == "1.0"
        assert run["events"][0]["runId"] == run["runId"]


@pytest.mark.req("SRV-05", "SRV-06")
@pytest.mark.parametrize("name", sorted({*PLAIN, *STATE} - NOT_READ_AGAIN - WITHOUT_AN_ENDING))
def test_run_read_again_is_the_same_over_both_wires(played: Played, name: str) -> None:
    for run in played[name]:
        for again in run["replayed"].values():
            assert again["events"] == run["events"]
            assert again["warnings"] == []


@pytest.mark.req("SRV-05")
def test_text(played: Played) -> None:
    (run,) = played["text"]
    assert conversation(run["messages"]) == [("user", "hello"), ("assistant", "Hello there, how are you?")]
    assert len(events(run, "TEXT_MESSAGE_CONTENT")) == 5
    assert run["finished"]["result"] == {"status": "completed", "finishReason": "stop", "iterations": 1}
    assert run["events"][-1]["usage"] == [{"inputTokens": 12, "outputTokens": 5, "totalTokens": 17}]


@pytest.mark.req("SRV-05")
def test_tool_call_comes_in_pieces_and_its_result_follows(played: Played) -> None:
    (run,) = played["tool"]
    assert [piece["delta"] for piece in events(run, "TOOL_CALL_ARGS")] == ['{"city', '": "Os', 'lo"}']
    assert conversation(run["messages"]) == [
        ("user", "weather"),
        ("assistant", 'get_weather({"city": "Oslo"})'),
        ("tool", '{"city":"Oslo","celsius":4}'),
        ("assistant", "It is 4 degrees in Oslo."),
    ]


@pytest.mark.req("SRV-05")
def test_parallel_tools_belong_to_one_message(played: Played) -> None:
    (run,) = played["parallel tools"]
    assert conversation(run["messages"])[1:] == [
        ("assistant", 'get_weather({"city": "Oslo"}) get_weather({"city": "Rome"})'),
        ("tool", '{"city":"Oslo","celsius":4}'),
        ("tool", '{"city":"Rome","celsius":22}'),
        ("assistant", "Rome is warmer."),
    ]


@pytest.mark.req("SRV-05")
def test_text_before_a_call_stays_in_its_message(played: Played) -> None:
    (run,) = played["text and tool"]
    assert [role for role, _ in conversation(run["messages"])] == ["user", "assistant", "tool", "assistant"]
    assert run["messages"][1]["content"] == "Let me look. "
    assert run["messages"][1]["toolCalls"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("name", "text"),
    [("broken tool", "broken failed: OSError: the disk is full"), ("wrong arguments", "city: is required and missing")],
)
def test_failed_tool_is_a_failed_result_and_the_run_continues(played: Played, name: str, text: str) -> None:
    (run,) = played[name]
    result = run["messages"][2]
    assert text in result["content"]
    assert result["error"] == result["content"]
    assert run["finished"]["outcome"] == "success"


def test_tool_result_with_a_picture_arrives_as_parts(played: Played) -> None:
    (run,) = played["tool with a picture"]
    picture = {"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}}
    assert run["messages"][2]["content"] == [{"type": "text", "text": "One pixel:"}, picture]


@pytest.mark.req("SRV-05")
def test_reasoning_is_a_message_before_the_answer(played: Played) -> None:
    (run,) = played["reasoning"]
    assert conversation(run["messages"]) == [("user", "reason"), ("reasoning", "Two plus two…"), ("assistant", "Four.")]
    (mixed,) = played["reasoning and tool"]
    roles = [role for role, _ in conversation(mixed["messages"])]
    assert roles == ["user", "reasoning", "assistant", "tool", "reasoning", "assistant"]


@pytest.mark.req("SRV-07")
def test_frontend_tool_is_carried_out_by_the_client(played: Played) -> None:
    asked, answered = played["frontend tool"]
    assert asked["finished"]["outcome"] == "success"
    assert asked["finished"]["pendingToolCallIds"] == [asked["messages"][-1]["toolCalls"][0]["id"]]
    assert conversation(answered["messages"])[1:] == [
        ("assistant", 'change_background({"colour": "blue"})'),
        ("tool", "painted"),
        ("assistant", "It is blue now."),
    ]


@pytest.mark.req("SRV-07")
def test_frontend_tool_beside_one_of_ours(played: Played) -> None:
    asked, answered = played["frontend tool beside ours"]
    assert [call["toolCallId"] for call in events(asked, "TOOL_CALL_RESULT")] == ["c2"]
    assert asked["finished"]["pendingToolCallIds"] == ["c1"]
    assert answered["messages"][-1]["content"] == "Red, and warm."


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("approve", ["a.txt is deleted"]),
        ("edit and approve", ["b.txt is deleted"]),
        ("refuse", ["The user refused this call. Do not try it again unless they ask for it."]),
        ("cancel the question", ["The user refused this call. Do not try it again unless they ask for it."]),
    ],
)
def test_interrupt_and_resume(played: Played, name: str, results: list[str]) -> None:
    asked, resumed = played[name]
    (interrupt,) = asked["finished"]["interrupts"]
    assert asked["finished"]["outcome"] == "interrupt"
    assert interrupt["metadata"] == {"tool": "delete_file", "arguments": '{"name": "a.txt"}'}
    assert interrupt["toolCallId"] == asked["messages"][-1]["toolCalls"][0]["id"]
    assert [text for role, text in conversation(resumed["messages"]) if role == "tool"] == results
    assert resumed["messages"][-1]["content"] == "As you wish."


def test_two_questions_are_answered_one_by_one(played: Played) -> None:
    asked, resumed = played["approve one of two"]
    assert [interrupt["toolCallId"] for interrupt in asked["finished"]["interrupts"]] == ["c1", "c2"]
    results = {result["toolCallId"]: result["content"] for result in events(resumed, "TOOL_CALL_RESULT")}
    assert results["c1"] == "a.txt is deleted"
    assert results["c2"].startswith("The user refused")


def test_foreign_resume_is_refused_before_the_stream(played: Played) -> None:
    _, refused = played["foreign resume"]
    assert (refused["outcome"], refused["error"]["status"]) == ("rejected", 422)
    problem = json.loads(refused["error"]["payload"])
    assert problem["type"] == "https://holodeck.dev/errors/invalid-request"
    assert problem["field"] == "resume"


@pytest.mark.parametrize(("name", "text"), [("error", ["I was about to"]), ("error at once", [])])
def test_failed_model_ends_the_run_with_its_code(played: Played, name: str, text: list[str]) -> None:
    (run,) = played[name]
    assert run["runError"]["code"] == "model-error"
    assert run["runError"]["message"] == "The model cannot be reached."
    assert run["runError"]["metadata"] == {"retryable": True, "reason": "upstream_unavailable"}
    assert [text for role, text in conversation(run["messages"]) if role == "assistant"] == text


def test_run_of_a_client_that_left_is_cancelled_after_the_grace(played: Played, addresses: dict[str, str]) -> None:
    (run,) = played["abort"]
    assert run["outcome"] == "resolved"
    assert kinds(run)[:4] == ["RUN_STARTED", "STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    shown = until(
        lambda: get(f"{addresses['plain']}/runs/{run['runId']}"), lambda received: received["state"] != "running"
    )
    assert (shown["state"], shown["readers"]) == ("cancelled", 0)


def test_client_that_comes_back_finds_its_run_alive(played: Played) -> None:
    """The run takes longer than the grace: it is there to the end only because a client reads it again."""
    (run,) = played["leave and come back"]
    assert len(events(run, "TEXT_MESSAGE_CONTENT")) < 4
    for again in run["replayed"].values():
        assert again["finished"]["outcome"] == "success"
        assert again["messages"][-1]["content"] == "One two three four"
        assert again["events"][: len(run["events"]) - 1] == run["events"][:-1]


@pytest.mark.parametrize(("name", "last"), [("stop", "One moment"), ("stop a tool", "Stopped before it finished")])
def test_stop_ends_the_run_as_cancelled(played: Played, name: str, last: str) -> None:
    (run,) = played[name]
    assert run["finished"]["outcome"] == "cancelled"
    assert run["messages"][-1]["content"].startswith(last)


@pytest.mark.req("SRV-07")
def test_multimodal_input_reaches_the_model(played: Played) -> None:
    (run,) = played["multimodal"]
    assert run["messages"][0]["content"] == PARTS
    seen = run["messages"][1]["content"]
    assert seen.startswith("I see image/png")
    assert "Dear model, all is well." in seen
    (files,) = [event["value"] for event in events(run, "CUSTOM") if event["name"] == "holodeck.files"]
    assert [file["read_as"] for file in files] == ["image", "text"]


def test_an_empty_reply_is_an_error_without_a_message(played: Played) -> None:
    (run,) = played["empty reply"]
    assert conversation(run["messages"]) == [("user", "say nothing")]
    (error,) = events(run, "RUN_ERROR")
    assert error["message"] == "The model returned an empty answer."


def test_long_reply_arrives_whole(played: Played) -> None:
    (run,) = played["long reply"]
    assert len(events(run, "TEXT_MESSAGE_CONTENT")) == 5_000
    assert run["messages"][-1]["content"] == "".join(LONG_REPLY)


def test_unicode_arrives_as_it_was_sent(played: Played) -> None:
    (run,) = played["unicode"]
    assert run["messages"][-1]["content"] == "".join(UNICODE)


@pytest.mark.req("SRV-07")
def test_second_turn_knows_the_first(played: Played) -> None:
    _, second = played["two turns"]
    assert second["messages"][-1]["content"] == "You said: hello | what did I say"
    assert len(second["messages"]) == 4


@pytest.mark.req("SRV-22")
def test_activity_custom_and_raw_events(played: Played) -> None:
    (run,) = played["activity, custom and raw"]
    activity = next(message for message in run["messages"] if message["role"] == "activity")
    assert (activity["activityType"], activity["content"]) == ("work", {"done": 100, "note": "beginning"})
    (custom,) = events(run, "CUSTOM")
    assert (custom["name"], custom["value"]) == ("example.progress", {"percent": 100, "left": None})
    (raw,) = events(run, "RAW")
    assert raw["event"] == {"provider": "scenes", "nothing": None}


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("cut reply", "completed", "reply-cut"), ("too many steps", "max_iterations", "max-iterations")],
)
def test_limits_are_reported(played: Played, name: str, status: str, code: str) -> None:
    (run,) = played[name]
    assert run["finished"]["result"]["status"] == status
    (warning,) = events(run, "CUSTOM")
    assert (warning["name"], warning["value"]["code"]) == ("holodeck.warning", code)


@pytest.mark.req("SRV-07")
def test_context_reaches_the_model(played: Played) -> None:
    (run,) = played["context"]
    assert "- page: /invoices" in run["messages"][-1]["content"]


@pytest.mark.req("SRV-05")
def test_client_that_forgot_gets_the_history_in_its_order(played: Played) -> None:
    known, received = played["client that forgot"]
    assert received["messages"][:4] == known["messages"]
    assert conversation(received["messages"])[4:] == [
        ("user", "what did I say"),
        ("assistant", "You said: weather | what did I say"),
    ]


@pytest.mark.req("SRV-05")
def test_messages_snapshot_equals_what_the_stream_built(played: Played) -> None:
    (run,) = played["tool"]
    (snapshot,) = events(run, "MESSAGES_SNAPSHOT")
    assert snapshot["messages"] == run["messages"]
    started = [event["messageId"] for event in events(run, "TEXT_MESSAGE_START")]
    assert started == [run["messages"][-1]["id"]]


@pytest.mark.req("SRV-05")
def test_state_starts_as_the_agent_says_and_changes_by_patches(played: Played) -> None:
    (run,) = played["state"]
    (snapshot,) = events(run, "STATE_SNAPSHOT")
    assert snapshot["snapshot"] == {"steps": [], "done": False, "document": ""}
    assert [operation["path"] for delta in events(run, "STATE_DELTA") for operation in delta["delta"]] == [
        "/steps/-",
        "/done",
    ]
    assert run["state"] == {"steps": ["buy milk"], "done": True, "document": ""}


@pytest.mark.req("SRV-05")
def test_state_lasts(played: Played) -> None:
    _, second = played["state of two runs"]
    assert second["state"]["steps"] == ["buy milk", "buy milk"]
    _, fresh = played["state kept for a client that forgot"]
    assert fresh["state"]["steps"] == ["buy milk"]


@pytest.mark.req("SRV-05")
def test_patch_that_does_not_fit_is_followed_by_the_state(played: Played) -> None:
    (run,) = played["patch that does not fit"]
    assert events(run, "STATE_DELTA") == []
    assert len(events(run, "STATE_SNAPSHOT")) == 2
    assert run["state"] == {"steps": [], "done": False, "document": ""}


@pytest.mark.req("SRV-22")
def test_predicted_state_grows_while_the_argument_is_written(played: Played) -> None:
    (run,) = played["predictive state"]
    announced = {"state_key": "document", "tool": "write_document", "tool_argument": "document"}
    assert events(run, "CUSTOM")[0]["value"] == [announced]
    shown = [delta["delta"][0]["value"] for delta in events(run, "STATE_DELTA")]
    assert len(shown) > 5
    assert shown == sorted(shown, key=len)
    assert all(shown[-1].startswith(part) for part in shown)  # never half an emoji
    assert run["state"]["document"] == shown[-1] == "Once upon a time there was a 🦊 in a “forest”."


@pytest.mark.req("SRV-05")
def test_stream_cut_anywhere_and_joined_is_the_uncut_one(played: Played, wire: str, addresses: dict[str, str]) -> None:
    """Byte by byte, with what a client knows: the last `id` line, or in protobuf the number of events."""
    (run,) = played["reasoning and tool"]
    address, accept = f"{addresses['plain']}/runs/{run['runId']}/events", {"Accept": CONTENT_TYPES[wire]}
    uncut = request(address, headers=accept)
    lengths = []
    for number in range(get(f"{addresses['plain']}/runs/{run['runId']}")["events"]):
        if wire == "sse":
            rest = request(address, headers={**accept, "Last-Event-ID": f"{run['runId']}:{number}"})
            known = uncut[: len(uncut) - len(rest)]
            assert f"id: {run['runId']}:{number}\n".encode() in known[known.rfind(b"\n\n", 0, -2) + 1 :]
        else:
            rest = request(f"{address}?after={number}", headers=accept)
        assert uncut.endswith(rest)
        lengths.append(len(rest))
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] == 0
