"""The soak itself, for a moment: `make soak` runs it for half an hour."""

import pytest

from tests.cli.chat_soak import SAYINGS, soak


@pytest.mark.req("CHT-01")
async def test_a_few_turns_do_not_cost_memory(tmp_path):
    memory = await soak(len(SAYINGS), 0, tmp_path)
    assert memory.before > 10_000_000
    assert memory.growth < 20
