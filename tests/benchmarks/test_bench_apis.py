"""The endpoint that the benchmark of the APIs asks: each client reads all its tokens. No test here measures time."""

import pytest

from benchmarks.apis import CHAT, MESSAGES, RESPONSES, models
from benchmarks.native import fake_apis
from benchmarks.tokens import TOKENS, WholeAgent
from holodeck.agent.definition import AgentDefinition
from holodeck.tools.catalogue import Catalogue


@pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES])
async def test_every_token_of_every_api_is_read(api):
    with fake_apis() as port:
        async with AgentDefinition(name="bench", model=models(port)[api], tools=Catalogue()) as agent:
            assert await WholeAgent(agent).answered() == TOKENS
