"""Runs on a store that processes share: starts that fail, runs that are left, endings that are not stored, heartbeats."""

import asyncio
from contextlib import closing, suppress
from types import SimpleNamespace

import msgspec
import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.config.agent_schema import ClusterSettings
from holodeck.config.build_stores import Stores
from holodeck.config.load import load_config
from holodeck.core.events import RunFinished, RunStarted, StepStarted
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import RunInterrupted, SessionBusy, ShuttingDown, StoreUnavailable
from holodeck.limits.window import MINUTE, Full, Use, Window
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs import executor, interrupted_runs, unstored_endings
from holodeck.runs import runs as runs_module
from holodeck.runs.interrupted_runs import InterruptedRuns
from holodeck.runs.log import RunLog
from holodeck.runs.port import Pulse, RunExists, RunState
from holodeck.runs.recovery import PART_STRIDE
from holodeck.runs.remote_runs import run_of
from holodeck.runs.replica import Replica
from holodeck.runs.runs import Runs
from holodeck.runs.shared_entry import SharedEntry
from holodeck.runs.stored_runs import StoredRuns
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import ServerSettings
from holodeck.server.process import build_server
from holodeck.stores.log_copier import LogPiece
from holodeck.stores.session_watches import SessionWatches
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.loop_clock import SteppedClock
from tests.runs.following import more
from tests.stores.processes import ENDING, opened
from tests.stores.stored_sessions import begun, on_file, run, texts

__all__ = ["opened"]


class TakingOver:
    """A process that takes over the runs that others have left in its store."""

    def __init__(self, store, *turns):
        self.store, self.runs = store, runs_on(store, *turns)
        self.interrupted = InterruptedRuns(self.runs)
        self.replica = Replica(self.runs, self.interrupted, store.runs, 50)
        self.taken_up = asyncio.get_running_loop().create_future()  # the first run
        self.interrupted.on_taken_up.append(self.taken_up.set_result)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.runs.close(0)
        await self.interrupted.close()

    async def take_over(self):
        """Takes the runs of silent processes over, and returns how many."""
        for _ in range(3):
            await self.store.runs.beat()
        return await self.interrupted.take_up(await self.store.runs.take_over(0))


@pytest.mark.req("D08", "D03b")
async def test_a_run_that_a_dead_process_left_in_the_queue_is_recovered_in_its_turn(opened):
    """The run before it belongs to a living process: it stores its answer first."""
    dead, alive = await opened(), await opened()
    running = await begun(alive, run())
    await running.commit([UserMessage(content="first", run_id="r")])
    asked = RunRequest(run_id="waits", session_id="s", messages=(UserMessage(content="second"),), detached=True)
    assert not (await dead.runs.begin(run("waits", request=asked))).is_first
    async with TakingOver(alive) as process:
        with closing(running):
            assert await process.take_over() == 1
            await running.commit([AssistantMessage(content="answer", run_id="r")], ending=ENDING)
        alive.runs.release(run())
        await asyncio.wait_for((await asyncio.wait_for(process.taken_up, 50)).done(), 50)
        assert await texts(alive) == ["first", "answer", "second", "hello"]
        states = [each.state for each in await alive.runs.runs_of(owner=ME)]
        assert states == [RunState.FINISHED, RunState.FINISHED]


@pytest.mark.req("D08", "D03b")
@pytest.mark.parametrize("lost", ["while it waits", "in its turn"])
async def test_the_message_of_a_run_that_was_left_in_the_queue_outlives_a_lost_store(opened, monkeypatch, lost):
    """Only its row has the message until the run begins."""
    for module in (executor, interrupted_runs):
        monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    dead, alive = await opened(), await opened()
    asked = RunRequest(run_id="waits", session_id="s", messages=(UserMessage(content="hi"),), detached=True)
    await begun(dead, run())
    await dead.runs.begin(run("waits", request=asked))
    await dead.runs.end(run(), ENDING)
    where, name = (alive.runs, "turn") if lost == "while it waits" else (alive, "read")
    works, failed = getattr(where, name), asyncio.Event()

    async def away(*args, **named):
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable("The database cannot be used.")
        return await works(*args, **named)

    monkeypatch.setattr(where, name, away)
    async with TakingOver(alive) as process:
        await process.take_over()
        await asyncio.wait_for(failed.wait(), 50)
        await (await asyncio.wait_for(process.taken_up, 50)).done()
        found = await alive.runs.find("waits", owner=ME)
        assert (await texts(alive), found.state) == (["hi", "hello"], RunState.FINISHED)


@pytest.mark.req("SRV-10")
async def test_a_run_that_was_left_in_the_queue_is_stopped_while_it_waits(opened):
    """Before its turn: the run before it may take an hour. Two were left, and the second is stopped."""
    dead, alive = await opened(), await opened()
    running = await begun(alive, run())
    for name in ("waits", "stopped"):
        await dead.runs.begin(run(name))
    with closing(running):
        async with TakingOver(alive) as process:
            assert await process.take_over() == 2
            assert await dead.runs.want_stop(run("stopped"))
            await process.replica.beat()
            async with asyncio.timeout(50):
                while (found := await dead.runs.find("stopped", owner=ME)).ending is None:
                    await asyncio.sleep(0.01)
            assert found.state is RunState.CANCELLED
            shown = await StoredRuns(process.runs, alive, alive.runs).find("stopped", owner=ME)
            assert shown.log.ending == found.ending
            assert [each.run_id for each in await alive.runs.open_runs(owner=ME)] == ["r", "waits"]


async def test_a_part_that_was_left_in_the_queue_and_is_stopped_keeps_the_log_of_the_part_before(opened):
    """It continues a run under its own id, so the log has events already, whose numbers clients know."""
    dead, alive = await opened(), await opened()
    first, asks = run("asks"), RunFinished("asks", "s")
    await begun(dead, first)
    log = [RunStarted("asks", "s"), StepStarted(1), asks]
    await dead.runs._store_pieces([LogPiece((ME, "asks"), 0, log, is_beginning=True)])
    await dead.runs.end(first, asks)
    dead.runs.release(first)
    running = await begun(alive, run())
    resumed = run("asks", request=RunRequest(run_id="asks", session_id="s", answered=(b"once",)))
    assert not (await dead.runs.begin(resumed, continues=asks)).is_first
    with closing(running):
        async with TakingOver(alive) as process:
            assert await process.take_over() == 1
            assert await dead.runs.want_stop(resumed)
            await process.replica.beat()
            async with asyncio.timeout(50):
                while process.runs.find("asks", owner=ME) is None:
                    await asyncio.sleep(0.01)
            await alive.runs._copier.close()
            pieces = await dead.runs.events(await dead.runs.find("asks", owner=ME))
            assert [(number, [type(each) for each in events]) for number, events in pieces] == [
                (0, [RunStarted, StepStarted, RunFinished]),
                (PART_STRIDE, [RunStarted, RunFinished]),
            ]
            assert [each.log.ending is not None for each in process.runs.get("asks", owner=ME).parts] == [True, True]


async def test_a_process_that_stops_leaves_what_waits_for_its_turn_to_another(opened):
    dead, alive = await opened(), await opened()
    await begun(alive, run())
    await dead.runs.begin(run("waits"))
    process = TakingOver(alive)
    assert await process.take_over() == 1
    await asyncio.wait_for(process.interrupted.close(), 50)
    left = await alive.runs.find("waits", owner=ME)
    assert (left.state, left.ending) == (RunState.QUEUED, None)


def begin_slowly(store, monkeypatch):
    """Events: a run is stored; its begin may return."""
    stored, released, begin = asyncio.Event(), asyncio.Event(), store.runs.begin

    async def slow(record, **more):
        found = await begin(record, **more)
        stored.set()
        await released.wait()
        return found

    monkeypatch.setattr(store.runs, "begin", slow)
    return stored, released


def runs_on(store, *turns):
    model = ScriptedModel(turns or [says("hello")])
    agent = AgentDefinition(name="tester", model=model, tools=Catalogue.of(PlainTools()))
    return Runs(agent, store, records=store.runs)


@pytest.mark.req("D08")
async def test_a_request_that_is_cancelled_while_its_run_is_stored_leaves_no_run(opened, monkeypatch):
    store = await opened()
    runs = runs_on(store)
    asked = RunRequest(session_id="s", messages=(UserMessage(content="hi"),))
    with monkeypatch.context() as patched:
        stored, released = begin_slowly(store, patched)
        request = asyncio.create_task(runs.start(asked))
        await asyncio.wait_for(stored.wait(), 50)
        request.cancel()
        released.set()
        await asyncio.wait({request}, timeout=50)
    assert request.cancelled()
    assert await store.runs.open_runs(owner=ME) == []
    after = await runs.start(msgspec.structs.replace(asked, run_id=new_ulid()))
    await asyncio.wait_for(after.done(), 50)
    assert after.state is RunState.FINISHED, "it does not wait for the run that never started"


@pytest.mark.req("D08")
async def test_a_run_that_is_being_stored_when_the_server_stops_does_not_start(opened, monkeypatch):
    """It would go on behind the back of the server, which has ended all runs that it knew."""
    store = await opened()
    runs = runs_on(store)
    stored, released = begin_slowly(store, monkeypatch)
    request = asyncio.create_task(runs.start(RunRequest(session_id="s", messages=(UserMessage(content="hi"),))))
    await asyncio.wait_for(stored.wait(), 50)
    await runs.close(0)
    released.set()
    with pytest.raises(ShuttingDown):
        await asyncio.wait_for(request, 50)
    assert await store.runs.open_runs(owner=ME) == []


@pytest.mark.req("D08")
async def test_a_second_request_under_the_id_of_a_run_that_is_being_stored_takes_nothing_from_it(opened, monkeypatch):
    """Two answers under one run id in one moment: the refusal of one must not drop what is noted of the other."""
    store = await opened()
    runs = runs_on(store)
    asked = RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hi"),))
    stored, released = begin_slowly(store, monkeypatch)
    request = asyncio.create_task(runs.start(asked))
    await asyncio.wait_for(stored.wait(), 50)
    with pytest.raises(RunExists):
        await asyncio.wait_for(runs.start(asked), 50)
    released.set()
    first = await asyncio.wait_for(request, 50)
    await asyncio.wait_for(first.done(), 50)
    assert (await store.runs.find("r", owner=ME)).ending == first.log.ending
    assert await texts(store) == ["hi", "hello"]


async def test_a_refused_continuation_of_a_run_leaves_the_run_as_it_was(opened):
    store = await opened()
    earlier = run_of(run(), RunLog())
    earlier.emit(ENDING)
    await store.runs.begin(run())
    await store.runs.end(run(), ENDING)
    store.runs.release(run())

    def refuse(_session_id, _ahead):
        raise SessionBusy("busy")

    with pytest.raises(SessionBusy):
        await SharedEntry(store.runs, refuse).begin(run_of(run(), RunLog(), earlier=earlier), run())
    assert (await store.runs.find("r", owner=ME)).ending == ENDING


@pytest.mark.req("D08")
async def test_a_run_whose_ending_could_not_be_stored_is_ended_later(opened):
    """Else all further runs of its session would wait for it until the process ends."""
    store = await opened()
    runs = runs_on(store)
    interrupted = InterruptedRuns(runs)
    replica = Replica(runs, interrupted, store.runs, 200)
    replica.takes_over = True
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="hi")])
    conversation.close()
    await replica.beat()
    await replica.beat()
    assert [each.run_id for each in await store.runs.open_runs(owner=ME)] == ["r"], "it goes on"
    store.runs.release(run())
    await replica.beat()
    await store.runs.begin(run("later"))
    await replica.beat()
    await asyncio.wait_for(store.runs.turn(run("later")), 50)
    found = await store.runs.find("r", owner=ME)
    assert (found.state, found.ending.code) == (RunState.INTERRUPTED, "interrupted")
    await replica.beat()
    assert [each.run_id for each in await store.runs.open_runs(owner=ME)] == ["later"]


async def test_a_process_that_takes_runs_up_still_beats():
    """A thousand runs take seconds. One that does not beat meanwhile ends its own runs, and others take it for dead."""
    taken, is_up = [], asyncio.Event()

    async def beat():
        return Pulse()

    async def take_over(seconds):
        taken.append(seconds)
        return [run()]

    async def take_up(_taken):
        await is_up.wait()

    records = SimpleNamespace(beat=beat, take_over=take_over, on_pulse=None)
    interrupted = SimpleNamespace(take_up=take_up, stop_queued=list)
    replica = Replica(SimpleNamespace(is_closing=False), interrupted, records, 200)
    await replica.beat()
    assert taken == [], "the agent has not started"
    replica.takes_over = True
    for _ in range(2):
        await asyncio.wait_for(replica.beat(), 50)
    assert taken == [200, 200]
    await asyncio.wait_for(replica.close(), 50)


class LostStore:
    """Is cut off after the first heartbeat: a refused one takes as long as the pool waits for a connection, or hangs."""

    def __init__(self, clock, refusal):
        self.clock, self.refusal, self.reached, self.ended, self.on_pulse = clock, refusal, None, [], None

    async def beat(self):
        if self.reached is None:
            self.reached = self.clock.now
            return Pulse()
        await (asyncio.sleep(self.refusal) if self.refusal is not None else asyncio.Event().wait())
        raise StoreUnavailable("The database cannot be used.")

    def stop_all(self, why, *, also_queued):
        assert isinstance(why, RunInterrupted)
        assert not also_queued
        self.ended.append(self.clock.now - self.reached)


@pytest.mark.req("D08")
@pytest.mark.parametrize("refusal", [0, 0.5, 1, 1.5, 2, 2.5, None])
async def test_a_process_that_loses_its_store_ends_its_runs_before_others_take_them_over(monkeypatch, caplog, refusal):
    """Whenever its heartbeats fail, and also between two of them."""
    clock = SteppedClock(monkeypatch)
    store = LostStore(clock, refusal)
    replica = Replica(store, SimpleNamespace(stop_queued=list), store, take_over_seconds=10)
    replica.start()
    await clock.advance(20)
    assert store.ended[0] == 8
    assert not replica.is_connected
    logged = [record.message for record in caplog.records if "ends its runs" in record.message]
    assert logged == ["no heartbeat has reached the store for 8 seconds; this server ends its runs"]
    await replica.close()


async def test_a_process_whose_store_comes_back_for_one_beat_ends_its_runs_in_time_when_it_is_silent_again(monkeypatch):
    """In a failover, the statement after the beat may fail, and the next beat get no answer."""
    clock, ended, begun = SteppedClock(monkeypatch), [], []

    async def beat():
        begun.append(clock.now)
        if len(begun) < 6:
            raise StoreUnavailable("away")
        if len(begun) > 6:
            await asyncio.Event().wait()
        return Pulse()

    async def take_over(_seconds):
        raise StoreUnavailable("away")

    records = SimpleNamespace(beat=beat, take_over=take_over, on_pulse=None)
    runs = SimpleNamespace(is_closing=False, stop_all=lambda *_, **__: ended.append(clock.now))
    replica = Replica(runs, SimpleNamespace(stop_queued=list), records, take_over_seconds=10)
    replica.takes_over = True
    replica.start()
    await clock.advance(40)
    assert ended[-1] == begun[5] + 8
    await replica.close()


async def test_a_process_that_stood_still_asks_first_whether_it_is_considered_dead(monkeypatch):
    """After a pause of the machine, no other process may have been there to take its runs over."""
    clock, beats = SteppedClock(monkeypatch), []

    async def beat():
        beats.append(clock.now)
        return Pulse()

    records = SimpleNamespace(beat=beat, on_pulse=None)
    replica = Replica(Runs.__new__(Runs), SimpleNamespace(stop_queued=list), records, take_over_seconds=10)
    replica.start()
    await clock.advance(3)
    await clock.advance(60, step=60)
    await clock.advance(3)
    assert beats[1:] == [1063, 1065.5]
    assert replica.is_connected
    await replica.close()


async def test_a_server_beats_from_the_moment_at_which_it_joins(path, monkeypatch):
    """Tool servers may need longer to start than other processes wait for a beat."""
    store, has_beaten, done = on_file(path, "tester"), asyncio.Event(), []
    real = {name: getattr(store.runs, name) for name in ("beat", "take_over")}

    async def beat():
        has_beaten.set()
        return await real["beat"]()

    async def take_over(seconds):
        done.append("took over")
        return await real["take_over"](seconds)

    class Slow(PlainTools):
        async def start(self):
            await asyncio.wait_for(has_beaten.wait(), 50)
            done.append("started")

    monkeypatch.setattr(store.runs, "beat", beat)
    monkeypatch.setattr(store.runs, "take_over", take_over)
    agent = AgentDefinition(name="tester", model=ScriptedModel([says("hello")]), tools=Catalogue.of(Slow()))
    settings = ServerSettings(cluster=ClusterSettings.model_construct(take_over_seconds=0.2))
    server = AgentServer(agent, store, records=store.runs, settings=settings)
    try:
        await asyncio.wait_for(server.start(), 50)
        assert done[:2] == ["started", "took over"]
    finally:
        await server.close()


@pytest.mark.req("D08")
async def test_a_run_that_waits_for_its_turn_also_waits_for_the_store(opened, monkeypatch):
    """Its message is stored: the run before it ends when the store is lost, and this one is answered afterwards."""
    monkeypatch.setattr(executor, "AGAIN_SECONDS", 0)
    store, answers, lost = await opened(), asyncio.Event(), asyncio.Event()
    runs = runs_on(store, says("one two", pause=answers.wait), says("hello"))
    interrupted = InterruptedRuns(runs)
    replica = Replica(runs, interrupted, store.runs, 200)
    turn = store.runs.turn

    async def away(record):
        if not lost.is_set():
            lost.set()
            raise StoreUnavailable("The database cannot be used.")
        await turn(record)

    monkeypatch.setattr(store.runs, "turn", away)
    first, second = [
        await runs.start(RunRequest(session_id="s", messages=(UserMessage(content=each),))) for each in ("a", "b")
    ]
    assert await more(first.log, 3)
    await asyncio.wait_for(lost.wait(), 50)
    replica._lost_store()
    await asyncio.wait_for(asyncio.gather(first.done(), second.done()), 50)
    assert (first.log.ending.code, second.state) == ("interrupted", RunState.FINISHED)
    assert await texts(store) == ["a", "one", "b", "hello"]


@pytest.mark.req("SRV-20", "D03")
@pytest.mark.parametrize(("others", "works"), [(1, False), (1, True), (0, False)])
async def test_a_server_that_stops_shows_no_ending_of_a_run_that_another_one_continues(
    opened, monkeypatch, others, works
):
    """A server that has not stored the ending of a run in time leaves the run, if another process is there."""
    monkeypatch.setattr(runs_module, "STOP_SECONDS", 0.01)
    for module in (runs_module, unstored_endings):
        monkeypatch.setattr(module, "CLOSE_SECONDS", 50 if works else 0.01)
    store, works_on, again = await opened(), asyncio.Event(), asyncio.Event()
    for _ in range(others):
        await (await opened()).runs.beat()
    await store.runs.beat()

    async def stubborn():
        while not works_on.is_set():
            with suppress(asyncio.CancelledError):
                await works_on.wait()

    async def away(*_):
        await again.wait()

    if not works:
        monkeypatch.setattr(store.runs, "end", away)
    runs = runs_on(store, says("one two", pause=stubborn))
    first = await runs.start(RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hi"),)))
    assert await more(first.log, 3)
    runs.attach(first)  # by a client that does not reconnect
    try:
        await asyncio.wait_for(runs.close(0), 50)
        found, ending, is_cut = await store.runs.find("r", owner=ME), first.log.ending, first.log.is_cut
    finally:
        works_on.set()
        again.set()
        await asyncio.wait({first.task}, timeout=50)
    assert is_cut == (store.runs.has_others and not works), "the workers of a file stop together"
    assert found.ending == (ending if works else None), "it is stored before it is shown"
    assert (ending is None) == is_cut


@pytest.mark.req("SRV-20", "D08")
async def test_a_server_that_stops_shows_no_ending_of_a_run_that_another_one_has_taken_over(opened, monkeypatch):
    """The store answers, and takes no ending from the process that no longer has the run."""
    monkeypatch.setattr(runs_module, "STOP_SECONDS", 0.01)
    store, other, works_on = await opened(), await opened(), asyncio.Event()
    monkeypatch.setattr(type(store.runs), "has_others", True)  # also for workers of one file

    async def stubborn():
        while not works_on.is_set():
            with suppress(asyncio.CancelledError):
                await works_on.wait()

    runs = runs_on(store, says("one two", pause=stubborn))
    first = await runs.start(RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hi"),)))
    assert await more(first.log, 3)
    runs.attach(first)
    try:
        for _ in range(3):
            await other.runs.beat()
        assert [each.run_id for each in await other.runs.take_over(0)] == ["r"]
        await asyncio.wait_for(runs.close(0), 50)
        assert (first.log.ending, first.log.is_cut) == (None, True)
        assert (await other.runs.find("r", owner=ME)).ending is None
    finally:
        works_on.set()
        await asyncio.wait({first.task}, timeout=50)


async def test_a_wait_that_is_cancelled_in_the_moment_in_which_it_ends_is_cancelled():
    watches = SessionWatches()
    watch = watches.open((ME, "s"))
    waiting = asyncio.create_task(watch.wait(50))
    await asyncio.sleep(0)
    watches.changed((ME, "s"))
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=50)
    assert waiting.cancelled(), "a run that waits for its turn can be stopped"


async def test_a_server_knows_how_many_share_a_limit_whose_store_is_down(opened, tmp_path):
    one, other = await opened(), await opened()
    (tmp_path / "agent.yaml").write_text(
        "name: tester\nmodel: {provider: demo}\nserver: {limits: {store: 'unix:///nowhere', requests_per_minute: 10}}\n"
    )
    server = build_server(load_config(tmp_path), ServerSettings(), stores=Stores(one, one.runs))
    for store in (one, other, one):
        await store.runs.beat()
    window = Window("address-requests", "x", 10, MINUTE)
    taken = [await server.quotas.take([Use(window, 1)]) for _ in range(6)]
    assert [isinstance(each, Full) for each in taken] == [False] * 5 + [True]
    await server.quotas.close()


async def test_a_process_that_stops_while_another_leaves_stops():
    async def beat():
        return Pulse()

    async def take_over(_seconds):
        return []

    records = SimpleNamespace(beat=beat, take_over=take_over, on_pulse=None)
    replica = Replica(Runs.__new__(Runs), SimpleNamespace(stop_queued=list), records, 200)
    replica.start()
    await asyncio.sleep(0)
    records.on_pulse(Pulse(left=True))
    await asyncio.wait_for(replica.close(), 50)
