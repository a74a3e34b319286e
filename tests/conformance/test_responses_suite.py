"""The compliance suite of Open Responses, where it is: `make conformance-responses CONFORMANCE=folder` installs and runs it."""

import pytest

from tests.conformance.responses_suite import COPY, TESTS, run_suite

IS_INSTALLED = (COPY / "node_modules" / ".bin" / "bun").exists()


@pytest.mark.skipif(not IS_INSTALLED, reason="make conformance-responses installs the suite")
@pytest.mark.req("SRV-24")
@pytest.mark.timeout(300)
async def test_open_responses_over_http() -> None:
    code, output = await run_suite(COPY)
    assert code == 0, output
    assert f"{len(TESTS)} passed" in output
