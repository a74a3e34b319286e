"""Judges streams by ag-ui-validate. Runs in an environment of its own, so it imports nothing of ours.

Scenarios as a JSON list on standard input, one line of JSON out for each. A scenario has a name and either `recorded`,
the text of a stream, or `url` and perhaps `input`, to run an agent and judge what it sends.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from ag_ui_validate.transport import TransportOptions, TransportResult, validate_body, validate_endpoint


async def _once(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


async def _judged(scenario: dict[str, Any]) -> TransportResult:
    if "recorded" in scenario:
        options = TransportOptions(recorded=True)
        return await validate_body(_once(scenario["recorded"]), "text/event-stream", options)
    return await validate_endpoint(scenario["url"], TransportOptions(input=scenario.get("input"), timeout_ms=10_000))


async def main() -> None:
    for scenario in json.load(sys.stdin):
        result = await _judged(scenario)
        found = [f"{each.rule} {each.severity}: {each.message}" for each in result.report.diagnostics]
        report = {"name": scenario["name"], "status": result.status, "events": result.event_count, "findings": found}
        sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
