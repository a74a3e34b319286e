"""Every error of the tree as problem+json (SRV-17)."""

import json
from typing import Any

import pytest

from holodeck import errors
from holodeck.server.problems import headers_of
from holodeck.wires.problem import problem


def every_error(kind: type[errors.HoloDeckError]) -> list[type[errors.HoloDeckError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in every_error(child))]


@pytest.mark.req("SRV-17")
@pytest.mark.parametrize("kind", every_error(errors.HoloDeckError), ids=lambda kind: kind.__name__)
def test_every_error_has_a_problem(kind: type[errors.HoloDeckError]) -> None:
    body = json.loads(problem(kind.__new__(kind, "It broke"), "req_0123456789ab").to_json())
    assert body["type"] == f"https://holodeck.dev/errors/{kind.code}"
    assert body["detail"] == "It broke"
    assert body["instance"] == "req_0123456789ab"
    assert body["title"] == kind.title
    assert 400 <= body["status"] <= 599
    assert None not in body.values()


@pytest.mark.parametrize(
    ("error", "members", "retry_after"),
    [
        (errors.InvalidRequest("no", field="messages[2].content"), {"status": 422, "field": "messages[2].content"}, None),
        (errors.InvalidRequest("no", status=400), {"status": 400}, None),
        (errors.ShuttingDown("bye"), {"status": 503, "retry_after": 5.0}, "5"),
        (errors.ModelUnavailable("busy", retry_after=0.2), {"reason": "upstream_overloaded", "retry_after": 0.2}, "1"),
        (errors.ModelUnavailable("busy", retry_after=-3), {"retry_after": -3}, "0"),
        (errors.ModelTimeout("slow"), {"status": 504, "reason": "upstream_timeout"}, None),
        (errors.SessionBusy(), {"status": 409, "detail": "The session has a run in progress"}, "2"),
        (errors.NotFound("half \ud83d pair\0"), {"detail": "half \ufffd pair"}, None),
    ],
)  # fmt: skip
@pytest.mark.req("SRV-17")
def test_extensions_and_headers(error: errors.HoloDeckError, members: dict[str, Any], retry_after: str | None) -> None:
    made = problem(error)
    body = json.loads(made.to_json())
    assert body.items() >= members.items()
    assert ("retry_after" in body) == (retry_after is not None)
    assert headers_of(error) == ({"Retry-After": retry_after} if retry_after else {})
    assert "instance" not in body
