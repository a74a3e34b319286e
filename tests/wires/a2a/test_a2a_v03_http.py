"""A2A 0.3 over HTTP+JSON, held against 1.0: files, data, waiting, and what is refused. The SDKs read the rest (tests/clients)."""

from typing import Any

import pytest

from holodeck.errors import InvalidRequest
from holodeck.wires.a2a import v03_http
from holodeck.wires.a2a.error_form import task_not_found

pytestmark = pytest.mark.req("SRV-27")


def sent(*content: Any, **configuration: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "content": list(content)}
    return {"message": message, **({"configuration": configuration} if configuration else {})}


def test_parts_of_a_request_are_unwrapped() -> None:
    parts = v03_http.params_of(
        "SendMessage",
        sent(
            {"text": "hi"},
            {"data": {"data": {"a": 1}}},
            {"file": {"fileWithBytes": "QUJD", "mimeType": "text/plain", "name": "a.txt"}},
            {"file": {"fileWithUri": "https://example.com/b"}},
        ),
    )["message"]["parts"]
    assert [{key: value for key, value in part.items() if value is not None} for part in parts] == [
        {"text": "hi"},
        {"data": {"a": 1}},
        {"raw": "QUJD", "mediaType": "text/plain", "filename": "a.txt"},
        {"url": "https://example.com/b"},
    ]


@pytest.mark.parametrize(
    ("configuration", "immediately"), [({}, None), ({"blocking": True}, False), ({"historyLength": 1}, True)]
)
def test_a_configuration_without_blocking_does_not_wait(
    configuration: dict[str, Any], *, immediately: bool | None
) -> None:
    read = v03_http.params_of("SendMessage", sent({"text": "hi"}, **configuration))
    assert read["configuration"].get("returnImmediately") is immediately


def test_answers_are_wrapped() -> None:
    parts = [{"raw": "QUJD", "mediaType": "text/plain", "filename": "a.txt"}, {"data": [1]}, {"text": "x"}]
    update = {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": parts}}}
    assert v03_http.update(update)["artifactUpdate"]["artifact"]["parts"] == [
        {"file": {"fileWithBytes": "QUJD", "mimeType": "text/plain", "name": "a.txt"}},
        {"data": {"data": {"value": [1]}}},
        {"text": "x"},
    ]
    canceled = {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_CANCELED"}}}
    assert v03_http.update(canceled)["statusUpdate"] == {
        "taskId": "t",
        "status": {"state": "TASK_STATE_CANCELLED"},
        "final": True,
    }


def test_errors_have_a_code_and_a_class() -> None:
    status, body = v03_http.http_error_of(task_not_found("x"), None)
    assert (status, body["code"], body["type"]) == (404, -32001, "TaskNotFoundError")
    assert v03_http.http_error_of(InvalidRequest("no"), None)[1]["type"] == "InvalidParamsError"


@pytest.mark.parametrize("wrong", [{}, {"message": 7}, {"message": {"content": "x"}}, {"message": {"content": [7]}}])
def test_an_invalid_message_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        v03_http.params_of("SendMessage", wrong)
