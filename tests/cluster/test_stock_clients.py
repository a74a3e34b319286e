"""Stock clients in front of two servers, behind a proxy without stickiness: connections break, and every word arrives once."""

import asyncio
from random import Random

import pytest

from tests.clients.driving import Json, node_22
from tests.cluster.replicas import Pace, replicas
from tests.cluster.round_robin import round_robin

CUTS = 4
STAGE = 10  # words between two cuts
WORDS = "".join(f"{number} " for number in range(STAGE * (CUTS + 1))) + "end"
STREAMS = ("/awp", "/runs/", "/copilotkit/agent/default/run", "/copilotkit/agent/default/connect")
FRAMES = 90 * STAGE  # bytes: fewer than the events of a stage have
CLIENTS = {"@ag-ui/client": "", "@copilotkit/core": "", "eventsource": "/runs/"}
"""Each client, and how the addresses begin whose answers are cut; else all streams are."""


class Cuts:
    """Cuts the first answers at seeded points. Each cut lets the model go on for one stage: the rest is written elsewhere."""

    def __init__(self, seed: str, pace: Pace, only: str, *, resumes: bool) -> None:
        self._random, self._pace, self._only, self._resumes = Random(seed), pace, only, resumes
        self.made = 0

    def after(self, path: str) -> int | None:
        if self.made == CUTS or not path.startswith(self._only or STREAMS):
            return None
        return self._random.randrange(1, FRAMES * (1 if self._resumes else self.made + 1))

    def when_cut(self) -> None:
        self.made += 1
        self._pace.permit(STAGE)


@pytest.mark.req("C07")
@pytest.mark.timeout(240)
async def test_stock_clients_get_every_word_once_wherever_they_come_back(tmp_path, postgres_database, valkey_url):
    pace = Pace(words=STAGE * (CUTS + 1))
    async with (
        replicas(tmp_path, postgres_database, pace, cluster=f", valkey: '{valkey_url}'") as servers,
        round_robin([server.port for server in servers]) as proxy,
    ):
        for number, (name, only) in enumerate(CLIENTS.items()):
            cuts = Cuts(name, pace, only, resumes=name == "eventsource")
            proxy.cut, proxy.when_cut = cuts.after, cuts.when_cut
            proxy.served.clear()
            pace.permit(STAGE)
            scenario: Json = {"name": name, "url": proxy.url, "run": f"run-{number}", "thread": f"thread-{number}"}
            (result,) = await asyncio.to_thread(node_22, "cut_driver.mjs", scenarios=[scenario], package=name)
            assert result["text"] == WORDS
            assert (cuts.made, result["times"], result["messages"]) == (CUTS, CUTS, 2)
            for shown in result["answers"]:
                assert len(shown) <= 1
                assert WORDS.startswith("".join(shown)), "a word came twice"
            if name == "eventsource":
                numbers = [int(each.rpartition(":")[2]) for each in result["ids"]]
                assert numbers == sorted(set(numbers)), "an event came twice"
            assert {server for server, path in proxy.served if path.startswith(only or STREAMS)} == {0, 1}
        assert pace.asked == len(CLIENTS)
