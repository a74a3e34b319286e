"""A little of `make fuzz` with every suite: the planted bug is found, and in the real server there is none."""

import asyncio

import pytest

from tests.fuzz.fuzzing import CANARY_PATH, fuzz, installed

pytestmark = pytest.mark.skipif(installed() is None, reason="schemathesis is not installed")
EXAMPLES = 2


@pytest.mark.timeout(120)
@pytest.mark.req("T18")
async def test_a_planted_bug_is_found_and_no_other(tmp_path):
    planted, answers = await asyncio.gather(
        fuzz(tmp_path / "canary", 10, canary=True, only=CANARY_PATH, phases="fuzzing"),
        fuzz(tmp_path / "server", EXAMPLES, phases="examples,coverage,fuzzing"),
    )
    assert planted.server_errors > 0, planted.output
    assert answers.code == 0, answers.output
    assert answers.cases > 100


@pytest.mark.timeout(120)
@pytest.mark.req("T18")
async def test_with_a_key_there_is_no_server_error_and_nothing_of_another_user(tmp_path):
    received = await fuzz(tmp_path / "server", EXAMPLES, phases="examples,fuzzing", keyed=True)
    assert received.code == 0, received.output
    assert received.cases > 50
