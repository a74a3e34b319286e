"""ag-ui-validate, the independent judge of streams: its 46 rules over what the server sends, recorded and live."""

import re
from collections.abc import Iterator

import pytest

from tests.clients.driving import Json, python
from tests.clients.plain_http import request
from tests.clients.scenarios import PLAIN, STATE

pytestmark = pytest.mark.req("SRV-05")
NEVER_END = {"abort", "leave and come back", "stop", "stop a tool"}
SILENT = {
    "AGUI208 info",  # a call names the message that it begins: the client makes it, as the specification says
    "AGUI902 info",  # no timestamps: they are optional
    "AGUI903 info",  # PredictState has no prefix: clients know it by this name
}
# The validator knows 0.1.21, in which a result is a string; 1.0 has parts too.
UNKNOWN_TO_IT = {"tool with a picture, 1.0": {"AGUI504 error"}}


def run_input(thread: str, scene: str, first: Json, version: str | None) -> Json:
    return {
        "threadId": thread,
        "runId": thread,
        "messages": [{"id": "u1", "role": "user", "content": first.get("say", scene)}],
        "tools": first.get("tools", []),
        "context": first.get("context", []),
        "state": {},
        "forwardedProps": {},
    } | ({"protocolVersion": version} if version else {})


def streams(addresses: dict[str, str]) -> Iterator[Json]:
    for agent, table in (("plain", PLAIN), ("state", STATE)):
        for name in sorted(set(table) - NEVER_END):
            for version in ("1.0", None):
                thread = f"validate-{name}-{version or 'legacy'}"
                body = run_input(thread, name, table[name][0], version)
                recorded = request(f"{addresses[agent]}/awp", body=body).decode()
                yield {"name": f"{name}, {version or 'legacy'}", "recorded": recorded}
    live = f"{addresses['plain']}/awp"
    yield {"name": "its own input, live", "url": live}
    for scene in ("weather", "fail", "talk on"):
        body = run_input(f"validate-live-{scene}", scene, {}, "1.0")
        yield {"name": f"{scene}, live", "url": live, "input": body}


@pytest.fixture(scope="module")
def judged(addresses: dict[str, str]) -> dict[str, Json]:
    return {result["name"]: result for result in python("validate_driver.py", list(streams(addresses)))}


def findings(result: Json) -> set[str]:
    return {re.split(": ", finding)[0] for finding in result["findings"]} - SILENT


def test_many_streams_were_judged(judged: dict[str, Json]) -> None:
    assert sum(result["status"] is None for result in judged.values()) >= 60
    assert [result["status"] for name, result in judged.items() if name.endswith("live")] == [200] * 4
    assert all(result["events"] >= 4 for result in judged.values())


def test_nothing_is_found(judged: dict[str, Json]) -> None:
    found = {name: findings(result) for name, result in judged.items() if findings(result)}
    assert found == UNKNOWN_TO_IT


def test_the_judge_is_awake() -> None:
    broken = 'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
    (result,) = python("validate_driver.py", [{"name": "no ending", "recorded": broken}])
    assert "AGUI003 error" in findings(result)
