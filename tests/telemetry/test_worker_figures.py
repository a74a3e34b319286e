"""One page for all workers: sums of what they count, also after one of them has died."""

import shutil

import pytest

from holodeck.telemetry.exposition import gauge, page
from holodeck.telemetry.metrics import Counter, Histogram
from holodeck.telemetry.worker_figures import WorkerFigures


class Worker:
    """What one process counts, and its seat among the others."""

    def __init__(self, folder, number):
        self.requests, self.seconds = Counter("requests", "", ("route",)), Histogram("seconds", "", (1,))
        self.busy, self.sessions, self.started = 0, 0, 0
        self.figures = WorkerFigures(folder, number, self.own)

    async def own(self):
        gauges = [
            gauge("busy", "", self.busy),
            gauge("sessions", "", self.sessions, together="max"),
            gauge("started", "", self.started, together="min"),
        ]
        return [self.requests.series(), self.seconds.series(), *gauges]

    async def shown(self):
        lines = page(await self.figures.all()).decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    async def dies(self):
        """Stops without notice: its socket does not answer, its file stays."""
        self.figures._server.close()
        self.figures._server = None


@pytest.fixture
async def worker(tmp_path):
    workers = []

    async def start(number):
        each = Worker(tmp_path, number)
        workers.append(each)
        await each.figures.start()
        return each

    yield start
    for each in workers:
        await each.figures.close()


async def test_whichever_is_asked_shows_all(worker):
    one, other = await worker(0), await worker(1)
    one.requests.add("/a", by=2)
    other.requests.add("/a", by=3)
    other.requests.add("/b")
    one.seconds.observe(0.5)
    other.seconds.observe(2)
    one.busy, one.sessions, one.started = 1, 7, 100
    other.busy, other.sessions, other.started = 2, 8, 90
    for each in (one, other):
        shown = await each.shown()
        assert (shown['requests{route="/a"}'], shown['requests{route="/b"}']) == (5, 1)
        assert (shown['seconds_bucket{le="1"}'], shown["seconds_count"], shown["seconds_sum"]) == (1, 2, 2.5)
        assert (shown["busy"], shown["sessions"], shown["started"]) == (3, 8, 90)


async def test_no_sum_falls_when_a_worker_dies_and_the_next_one_continues_counting(worker):
    one, other = await worker(0), await worker(1)
    other.requests.add("/a", by=3)
    one.busy, other.busy = 1, 2
    assert (await one.shown())['requests{route="/a"}'] == 3
    await other.dies()
    shown = await one.shown()
    assert (shown['requests{route="/a"}'], shown["busy"]) == (3, 1)
    successor = await worker(1)
    successor.requests.add("/a")
    for each in (one, successor):
        assert (await each.shown())['requests{route="/a"}'] == 4
    await successor.figures.close()
    assert (await one.shown())['requests{route="/a"}'] == 4, "one that stops leaves what it has counted"


async def test_without_its_folder_a_worker_shows_its_own(worker, tmp_path):
    """Programs that clean up /tmp may take it away."""
    one = await worker(0)
    one.requests.add("/a")
    shutil.rmtree(tmp_path)
    assert (await one.shown())['requests{route="/a"}'] == 1
