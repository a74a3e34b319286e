"""Many users at once, some of whom leave in the middle: no user gets a word of another user's conversation (T11)."""

import asyncio
import json
import random
import re

import pytest

from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from tests.models.endpoint import ModelEndpoint, text_frames
from tests.server.serving import ask, read_to, served

USERS, TURNS = 30, 8
CANARY = re.compile(r"canary-\d+-")
STUCK = "stuck"


async def echo(wire):
    """Says the question back, in so many pieces that a client can leave between any two; gets stuck if asked to."""
    text = wire.request.json["messages"][-1]["content"]
    *most, last = text_frames(*(f"{text} " for _ in range(10)))
    await wire.head()
    for piece in most:
        await wire.send(piece)
        await asyncio.sleep(0)
    if text.endswith(STUCK):
        await wire.hang()
        return
    await wire.send(last)
    await wire.end()


async def talk(s, user, chance):
    """A conversation of one user, who leaves some answers early, stuck ones always. Returns how many were stuck."""
    stuck = 0
    for turn in range(TURNS):
        end = chance.choice(["read", "left", STUCK])
        async with s.post(ask(f"canary-{user}- {turn} {end}", thread=f"thread-{user}")) as answer:
            received = await (answer.read() if end == "read" else read_to(answer, "TEXT_MESSAGE_CONTENT"))
        assert set(CANARY.findall(received.decode())) == {f"canary-{user}-"}
        assert (b"RUN_FINISHED" in received) is (end == "read")
        stuck += end == STUCK
    return stuck


@pytest.mark.req("T11")
@pytest.mark.parametrize("seed", [1, 2])
async def test_who_leaves_in_the_middle_leaves_nothing_for_the_next(tmp_path, seed):
    async with ModelEndpoint(echo) as endpoint:
        model = {"provider": "openai_compatible", "name": "m", "endpoint": endpoint.url, "api_key": "none"}
        (tmp_path / "agent.yaml").write_text(json.dumps({"name": "tester", "model": model}))
        agent = build_agent(load_config(tmp_path / "agent.yaml"))
        async with served(agent=agent, detach_grace=0) as s:
            stuck = sum(
                await asyncio.gather(*(talk(s, user, random.Random(f"{seed} {user}")) for user in range(USERS)))
            )
            for user in range(USERS):
                async with s.get(f"/sessions/thread-{user}") as answer:
                    assert set(CANARY.findall(await answer.text())) == {f"canary-{user}-"}
        asked = [set(CANARY.findall(request.body.decode())) for request in endpoint.requests]
        assert all(len(each) == 1 for each in asked)
        assert (
            len(asked) > endpoint.connections >= stuck > USERS
        )  # some were used again, none that was left in the middle
