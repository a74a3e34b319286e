"""A part of the MCP conformance suite that needs no waiting. `make conformance-mcp` installs it and runs the whole."""

import pytest

from tests.conformance.mcp_suite import fixtures, is_installed, suite

SCENARIOS = ("server-stateless", "http-header-validation", "dns-rebinding-protection", "tools-list")


@pytest.mark.skipif(not is_installed(), reason="make conformance-mcp installs the suite")
@pytest.mark.timeout(300)
def test_the_envelope_is_as_the_protocol_demands() -> None:
    with fixtures() as address:
        for scenario in SCENARIOS:
            done = suite(address, "--scenario", scenario, "--spec-version", "2026-07-28")
            assert done.returncode == 0, done.stdout[-4000:]
