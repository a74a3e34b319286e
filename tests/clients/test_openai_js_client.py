"""OpenAI's SDK for JavaScript against a real server: Chat Completions and Responses, raw and with its helpers."""

import pytest

from tests.clients.driving import Json, node_22

pytestmark = [pytest.mark.req("SRV-24"), pytest.mark.timeout(300)]
SCENES = (
    "chat, plain", "chat, raw stream", "chat, helper", "chat, runTools", "chat, two turns", "chat, stopped", "chat, errors",
    "responses, plain", "responses, raw stream", "responses, helper", "responses, own tool", "responses, approval",
    "responses, background", "responses, errors", "models",
)  # fmt: skip
HELLO, WEATHER, REMEMBERED = "Hello there, how are you?", "It is 4 degrees in Oslo.", "You said: hello | what did I say"

Played = dict[str, Json]


@pytest.fixture(scope="module")
def played(addresses: dict[str, str]) -> Played:
    scenarios = [{"name": name, "url": addresses["plain"]} for name in SCENES]
    return {result["name"]: result for result in node_22("openai_driver.mjs", scenarios=scenarios, package="openai")}


def test_chat_plain_and_streamed(played: Played) -> None:
    plain = played["chat, plain"]
    assert (plain["text"], plain["reason"], plain["tokens"]) == (HELLO, "stop", 17)
    assert "".join(played["chat, raw stream"]["pieces"]) == HELLO
    assert len(played["chat, raw stream"]["pieces"]) == 5
    assert played["chat, two turns"]["text"] == REMEMBERED


def test_the_helper_shows_no_calls_of_server_tools(played: Played) -> None:
    helper = played["chat, helper"]
    assert (helper["text"], "".join(helper["pieces"])) == (WEATHER, WEATHER)
    assert (helper["calls"], helper["reason"]) == ([], "stop")


def test_run_tools_carries_out_the_clients_tool(played: Played) -> None:
    assert played["chat, runTools"]["texts"] == ["It is blue now."] * 2
    assert played["chat, runTools"]["painted"] == ["blue"] * 2


def test_a_stream_is_aborted(played: Played) -> None:
    assert played["chat, stopped"]["class"] == "APIUserAbortError"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_errors_are_the_sdks_own(played: Played, api: str) -> None:
    errors = played[f"{api}, errors"]
    unknown, failed = errors["model"], errors["run"]
    assert (unknown["class"], unknown["code"], unknown["param"]) == ("NotFoundError", "model_not_found", "model")
    assert "only the agent 'scenes'" in unknown["message"]
    assert (failed["class"], failed["message"]) == ("InternalServerError", "502 The model cannot be reached.")
    if api == "chat":
        assert (errors["parameter"]["class"], errors["parameter"]["param"]) == ("BadRequestError", "n")
    else:
        assert errors["before"]["code"] == "previous_response_not_found"


def test_responses_remember(played: Played) -> None:
    assert played["responses, plain"]["texts"] == [HELLO, REMEMBERED]
    assert played["responses, plain"]["tokens"] == 17


def test_responses_streamed(played: Played) -> None:
    raw, helper = played["responses, raw stream"], played["responses, helper"]
    assert raw["numbers"] == list(range(len(raw["types"])))
    assert (raw["types"][0], raw["types"][-1]) == ("response.created", "response.completed")
    assert (helper["text"], "".join(helper["pieces"])) == (WEATHER, WEATHER)
    assert helper["items"] == ["mcp_call", "message"]


def test_tools_and_approvals_of_responses(played: Played) -> None:
    painted, approved = played["responses, own tool"], played["responses, approval"]
    assert (painted["text"], painted["painted"]) == ("It is blue now.", ["blue"])
    assert (approved["asked"], approved["text"]) == ("mcp_approval_request", "As you wish.")
    assert (approved["call"]["type"], approved["call"]["output"]) == ("mcp_call", "a.txt is deleted")


def test_a_response_in_the_background_is_cancelled_or_read_later(played: Played) -> None:
    result = played["responses, background"]
    assert result["begun"] in ("queued", "in_progress")
    assert (result["cancelled"], result["status"], result["text"]) == ("cancelled", "completed", HELLO)
    assert (result["first"], result["last"]) == (2, "response.completed")


def test_the_agent_is_the_only_model(played: Played) -> None:
    assert played["models"]["ids"] == ["scenes"]
