"""The AI SDK with the agent as a model (`@ai-sdk/openai`), over Responses and over Chat Completions."""

import pytest

from tests.clients.driving import Json, node_22

pytestmark = pytest.mark.timeout(300)

FAILED = "error: The model cannot be reached."
EXPECTED = {
    ("responses", "hello"): ("Hello there, how are you?", ["finish: stop"]),
    ("chat", "hello"): ("Hello there, how are you?", ["finish: stop"]),
    ("responses", "weather"): ("It is 4 degrees in Oslo.", ["tool-call: mcp.get_weather, run by the server", "finish: stop"]),
    ("chat", "weather"): ("It is 4 degrees in Oslo.", ["finish: stop"]),
    ("responses", "delete it"): ("", ["tool-call: mcp.delete_file, run by the server", "tool-approval-request", "finish: stop"]),
    ("responses", "paint it blue"): ("", ["tool-call: change_background", "finish: tool-calls"]),
    ("chat", "paint it blue"): ("", ["tool-call: change_background", "finish: tool-calls"]),
    ("responses", "fail"): ("I was about to", [FAILED, "finish: error"]),
    ("chat", "fail"): ("I was about to", [FAILED, "finish: error"]),
}  # fmt: skip
"""The answer, and those parts of the stream that say what happened."""
TELLING = "tool-call:", "tool-approval", "error", "finish:"


def test_every_part_of_the_stream_is_understood(addresses: dict[str, str]) -> None:
    scenarios: list[Json] = [
        {"name": f"{api}, {text}", "url": addresses["plain"], "api": api, "text": text} for api, text in EXPECTED
    ]
    received = node_22("aisdk_provider_driver.mjs", scenarios=scenarios, package="@ai-sdk/openai")
    for result, (answer, parts) in zip(received, EXPECTED.values(), strict=True):
        found = [part for part in result["parts"] if part.startswith(TELLING)]
        assert (result["answer"], found) == (answer, parts), result["name"]
