"""Logs and commands through a real Valkey, and what happens when it forgets."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as LostConnection

from holodeck.core.events import RunFinished, TextAdded
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.owner import Owner
from holodeck.errors import SessionBusy, StartError, StoreUnavailable
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord
from holodeck.runs.recovery import PART_STRIDE
from holodeck.runs.remote_runs import RemoteRuns, run_of
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.shared_entry import SharedEntry
from holodeck.stores import records, valkey_link
from holodeck.stores.log_copier import LogCopier, LogPiece
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_sessions import PostgresSessionStore
from holodeck.stores.valkey_line import ValkeyLine
from holodeck.stores.valkey_link import ValkeyLink
from holodeck.valkey_pool import pool_of
from tests.limits.valkey_server import valkey
from tests.ports import free_port
from tests.stores.processes import on_database, sql

RUN, LOG = (ME, "r"), ((ME, "r"), 1)
EVENTS = [TextAdded("m", str(number)) for number in range(6)]
OTHER = (Owner("x", "y"), "r"), 1
ENDING = RunFinished("r", "s")


@pytest.fixture(scope="module")
def url():
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as address:
        yield address


@pytest.fixture
async def linked(url):
    """Links of processes that share a Valkey, which is empty."""
    with Redis.from_url(url) as client:
        client.flushall()
    links = []

    async def open_link(replica="one"):
        link = ValkeyLink(url, "tester", replica, replay_window=120, seconds=30)
        links.append(link)
        await link.start()
        return link

    yield open_link
    for link in links:
        await link.close()


async def events(link, first=0, log=LOG):
    return records.pieces_of(await link.read(log, first), first)


def piece(first, events, log=LOG):
    return log, LogPiece(log[0], first, events, is_beginning=first % PART_STRIDE == 0)


async def test_what_one_process_adds_every_other_reads_from_any_event_on(linked):
    one, other = await linked("one"), await linked("other")
    assert await one.append([piece(0, EVENTS[:2]), piece(0, EVENTS[5:], OTHER)]) == set()
    assert await one.append([piece(2, EVENTS[2:5])]) == set()
    assert await events(other) == [(0, EVENTS[:2]), (2, EVENTS[2:5])]
    assert await events(other, 3) == [(3, EVENTS[3:5])]
    assert await events(other, 5) == []
    assert await events(other, log=(RUN, 2)) == [], "a run of the same id that was deleted is another one"
    assert await events(other, log=OTHER) == [(0, EVENTS[5:])]


@pytest.mark.req("D08")
async def test_a_sealed_log_takes_nothing_more_and_the_next_part_follows_it(linked):
    late, taker = await linked("late"), await linked("taker")
    await late.append([piece(0, EVENTS[:2])])
    await taker.seal([(LOG, 0)])
    assert await late.append([piece(2, EVENTS[2:4])]) == set()
    assert late.is_up, "a log that is sealed is no fault of the store"
    await taker.append([piece(PART_STRIDE, EVENTS[4:])])
    assert await events(taker) == [(0, EVENTS[:2]), (PART_STRIDE, EVENTS[4:])]
    assert await events(taker, 2) == [(PART_STRIDE, EVENTS[4:])]


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-lru", "volatile-ttl"])
async def test_a_start_warns_of_a_store_that_evicts_keys(linked, url, caplog, policy):
    """Every key has an expiry, so the policies `volatile-*` evict them as well."""
    with Redis.from_url(url) as client:
        client.config_set("maxmemory-policy", policy)
        try:
            await linked()
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    warned = [f"cluster.valkey evicts keys (maxmemory-policy {policy})"] if policy != "noeviction" else []
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == warned


async def test_a_log_that_the_store_forgot_is_copied_again_from_its_beginning(linked, url):
    link, log = await linked(), RunLog()
    copier = LogCopier(lambda pieces: link.append([(LOG, each) for each in pieces]))
    copier.seconds = 0
    copier.follow(RUN, log)
    for event in EVENTS[:3]:
        log.append(event)
    async with asyncio.timeout(50):
        while await events(link) != [(0, EVENTS[:3])]:
            await asyncio.sleep(0.01)
        with Redis.from_url(url) as client:
            client.flushall()
        log.append(EVENTS[3])
        while await events(link) != [(0, EVENTS[:4])]:
            await asyncio.sleep(0.01)
    await copier.close()


async def test_a_store_that_is_full_counts_as_away_so_that_the_database_carries_the_piece(linked, url, caplog):
    link = await linked()
    assert await link.append([piece(0, EVENTS[:2])]) == set()
    with Redis.from_url(url) as client:
        client.config_set("maxmemory", 1)
        try:
            assert await link.append([piece(2, EVENTS[2:4])]) is None
        finally:
            client.config_set("maxmemory", 0)
    assert not link.is_up
    assert "the database carries the logs" in caplog.text


async def test_nothing_is_kept_for_ever(linked, url):
    link = await linked()
    await link.append([piece(0, EVENTS[:2])])
    await link.append([piece(0, [*EVENTS, ENDING], ((ME, "ended"), 1))])
    await link.seal([(((ME, "never written"), 1), 0)])
    await link.send("other", "stop", RUN)
    with Redis.from_url(url) as client:
        lives = sorted(client.ttl(key) for key in client.scan_iter())
        assert not any(b"anonymous" in key for key in client.scan_iter())
    assert len(lives) == 4
    assert 0 < lives[0] <= 120
    assert all(life > 0 for life in lives)


async def test_the_part_before_a_crash_is_kept_no_longer_than_the_one_with_the_ending(linked, url):
    dead, taker = await linked("dead"), await linked("taker")
    await dead.append([piece(0, EVENTS[:2])])
    await taker.seal([(LOG, 0)])
    await taker.append([piece(PART_STRIDE, EVENTS[2:])])
    with Redis.from_url(url) as client:
        assert all(client.ttl(key) > 120 for key in client.scan_iter("*:log:*"))
        await taker.append([piece(PART_STRIDE + 4, [ENDING])])
        assert all(0 < client.ttl(key) <= 120 for key in client.scan_iter("*:log:*"))
    assert await events(taker) == [(0, EVENTS[:2]), (PART_STRIDE, EVENTS[2:]), (PART_STRIDE + 4, [ENDING])]


async def test_the_news_of_a_session_is_kept_for_a_minute(linked, url):
    """It takes 4.4 KB, however short it is."""
    link = await linked()
    await link.append([(LOG, LogPiece(RUN, 0, EVENTS, is_beginning=True, session="s"))])
    with Redis.from_url(url) as client:
        (key,) = client.scan_iter("*:runs")
        assert 0 < client.ttl(key) <= 60


async def test_commands_arrive_and_a_reader_is_woken(linked):
    one, other = await linked("one"), await linked("other")
    commands = asyncio.Queue()
    one.on_command = lambda command, run: commands.put_nowait((command, run))
    await other.send("one", "stop", RUN)
    assert await asyncio.wait_for(commands.get(), 50) == ("stop", RUN)
    waiting = asyncio.create_task(other.wait(LOG, 0, 50))
    async with asyncio.timeout(50):
        while not other._watched:
            await asyncio.sleep(0)
    await one.append([piece(0, EVENTS[:2])])
    await asyncio.wait_for(waiting, 40)
    other.stop_waiting(RUN)
    assert not other._watched
    assert commands.empty(), "a look at oneself is no command"


async def test_a_run_that_begins_or_ends_wakes_those_that_watch_its_session(linked):
    one, other = await linked("one"), await linked("other")
    news = asyncio.Queue()
    other.on_session = news.put_nowait
    other.watch_session((ME, "s"))
    for events, first in ((EVENTS[:2], 0), ([ENDING], 2)):
        piece_of_s = LogPiece(RUN, first, events, is_beginning=first == 0, session="s")
        assert await one.append([(LOG, piece_of_s)]) == set()
        assert await asyncio.wait_for(news.get(), 50) == (ME, "s")
    other.stop_watching((ME, "s"))
    assert not other._sessions


async def test_a_master_that_no_sentinel_knows_is_one_short_sentence():
    """The error went on with the representation of a client and its connections."""
    url = f"valkey+sentinel://127.0.0.1:{free_port()}/missing"
    with pytest.raises(StartError) as caught:
        await ValkeyLink(url, "tester", "one", replay_window=120).start()
    assert caught.value.message == "the Valkey of cluster.valkey cannot be reached: No master found for 'missing'"


async def test_one_that_is_not_there_is_an_error_at_the_start_and_nothing_later(tmp_path):
    link = ValkeyLink(f"unix://{tmp_path}/none.sock", "tester", "one", replay_window=120)
    with pytest.raises(StartError, match="cannot be reached"):
        await link.start()
    assert await link.append([piece(0, EVENTS)]) is None
    assert not link.is_up
    assert await link.read(LOG, 0) == []
    await link.send("other", "stop", RUN)
    await link.close()


async def test_an_outage_is_seen_also_between_two_attempts_until_they_succeed(linked, monkeypatch):
    link = await linked("one")
    assert not link.is_away
    link.lost(LostConnection("refused"), retry_seconds=0)
    assert (link.is_up, link.is_away) == (True, True)
    monkeypatch.setattr(valkey_link, "AWAY_SECONDS", 0)
    assert not link.is_away


async def test_an_outage_is_logged_once_a_minute_and_not_with_each_attempt(linked, caplog, monkeypatch):
    link = await linked("one")
    for _ in range(3):
        link.lost(LostConnection("refused"), retry_seconds=0)
    assert caplog.text.count("cluster.valkey is not available") == 1
    monkeypatch.setattr(valkey_link, "LOG_SECONDS", 0)
    link.lost(LostConnection("refused"), retry_seconds=0)
    assert caplog.text.count("cluster.valkey is not available") == 2


@pytest.mark.req("D06")
async def test_a_log_that_lost_its_end_in_a_failover_is_copied_again(linked, url):
    one, other = await linked("one"), await linked("other")
    await one.append([piece(0, EVENTS[:2])])
    await one.append([piece(2, EVENTS[2:4])])
    with Redis.from_url(url) as client:
        (key,) = client.keys("hd:1:*:log:0")
        client.xdel(key, "4-0")
    one.lost(LostConnection("failover"), retry_seconds=0)
    assert await one.append([piece(4, EVENTS[4:])]) == {RUN}
    assert await events(other) == [(0, EVENTS[:2])], "no piece follows a gap"
    assert await one.append([piece(0, EVENTS)]) == set()
    assert await one.append([piece(6, [ENDING])]) == set()
    assert [each for _, part in await events(other) for each in part] == [*EVENTS, ENDING]


@pytest.mark.parametrize(
    ("url", "places", "settings"),
    [
        ("valkey+sentinel://a,b:1,[::1]:2/name", [("a", 26379), ("b", 1), ("::1", 2)], {"db": 0, "password": None}),
        ("valkeys+sentinel://me:s%40@a/name/3?sentinel_password=p", [("a", 26379)], {"db": 3, "password": "s@"}),
    ],
)
def test_the_address_of_sentinels(url, places, settings):
    pool = pool_of(url, seconds=1, answer_seconds=1, max_connections=1)
    sentinels = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"]) for each in sentinels] == places
    assert pool.service_name == "name"
    assert settings.items() <= pool.connection_kwargs.items()
    assert sentinels[0].get("password") == ("p" if "sentinel_password" in url else None)


@pytest.mark.parametrize("url", ["valkey+sentinel://a", "valkey+sentinel:///name", "valkey+sentinel://a:b/name"])
def test_an_invalid_sentinel_address_is_refused(url):
    with pytest.raises(ValueError, match=r"missing|invalid literal"):
        pool_of(url, seconds=1, answer_seconds=1, max_connections=1)


async def test_a_log_that_is_gone_when_its_run_ends_is_copied_again_as_a_whole(postgres_database, url):
    class Forgetful(ValkeyLink):
        """Has lost the log when its last piece comes."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.pieces, self.whole = [], asyncio.Event()

        async def append(self, named):
            self.pieces += [piece for _, piece in named]
            if [piece.first for piece in self.pieces] == [0, 1, 0]:
                self.whole.set()
            return {RUN} if len(self.pieces) == 2 else set()

    database = PostgresDatabase(postgres_database)
    runs = PostgresRunStore(database, "tester")
    link = Forgetful(url, "tester", runs.replica, replay_window=120, seconds=30)
    runs.connect(link)
    store = PostgresSessionStore(database, "tester", runs=runs)
    await store.start()
    try:
        record, run_log = RunRecord(run_id="r", owner=ME, session_id="s"), RunLog()
        runs.register(record)
        await runs.begin(record)
        runs.follow(record, run_log)
        run_log.append(EVENTS[0])
        async with asyncio.timeout(30):
            while not link.pieces:
                await asyncio.sleep(0.01)
            run_log.append(ENDING)
            await link.whole.wait()
        assert list(link.pieces[-1].events) == [EVENTS[0], ENDING]
    finally:
        await store.close()


@pytest.fixture
async def linked_store(postgres_database, url):
    """A store whose logs a Valkey carries."""
    store = on_database(postgres_database, "tester")
    store.runs.connect(ValkeyLink(url, "tester", store.runs.replica, replay_window=120, seconds=30))
    await store.start()
    yield store
    await store.close()


async def test_reading_a_run_that_has_ended_leaves_nothing_in_memory(linked_store):
    runs, record = linked_store.runs, RunRecord(run_id="r", owner=ME, session_id="s")
    runs.register(record)
    await runs.begin(record)
    await runs.end(record, ENDING)
    runs.release(record)
    runs._logs.clear()
    await runs.events(await runs.find("r", owner=ME))
    assert runs._logs == {}


async def test_a_run_that_cannot_be_followed_leaves_nothing_in_memory(linked_store, monkeypatch):
    """The store fails between the copy of its log and the history of its session."""
    runs, record = linked_store.runs, RunRecord(run_id="r", owner=ME, session_id="s")

    async def fails(_record):
        assert runs._logs
        raise StoreUnavailable("away")

    runs.register(record)
    await runs.begin(record)
    runs.release(record)
    runs._logs.clear()
    remote = RemoteRuns(linked_store, runs, RunSettings())
    monkeypatch.setattr(remote, "_history", fails)
    with pytest.raises(StoreUnavailable):
        await remote.open(record)
    assert (runs._logs, remote._followed) == ({}, {})


async def test_a_resume_that_is_refused_leaves_nothing_in_memory(postgres_database):
    """The row of its run gets its ending back, so nothing is withdrawn."""
    database = PostgresDatabase(postgres_database)
    runs = PostgresRunStore(database, "tester")
    store = PostgresSessionStore(database, "tester", runs=runs)
    await store.start()

    def refuse(_session_id, _ahead):
        raise SessionBusy("busy")

    try:
        record = RunRecord(run_id="r", owner=ME, session_id="s")
        await runs.begin(record)
        await runs.end(record, ENDING)
        runs.release(record)
        runs._logs.clear()
        first = run_of(record, RunLog())
        first.emit(ENDING)
        with pytest.raises(SessionBusy):
            await SharedEntry(runs, refuse).begin(run_of(record, RunLog(), earlier=first), record)
        assert (runs._logs, runs._keys, runs._records) == ({}, {}, {})
    finally:
        await store.close()


async def test_a_run_that_is_withdrawn_leaves_nothing_in_memory(linked_store):
    runs, record = linked_store.runs, RunRecord(run_id="r", owner=ME, session_id="s")
    runs.register(record)
    await runs.begin(record)
    await runs.withdraw(record)
    assert (runs._logs, runs._keys, runs._records) == ({}, {}, {})


async def test_a_run_that_continues_before_its_first_ending_is_copied_is_copied_to_its_last_one(
    linked_store, linked, postgres_database
):
    """A program answers the question of a run at once, under the run's own id."""
    runs, record = linked_store.runs, RunRecord(run_id="r", owner=ME, session_id="s")
    first, later, other = RunLog(), RunLog(), await linked("other")
    await runs.begin(record)
    runs.follow(record, first)
    for event in (EVENTS[0], ENDING):
        first.append(event)
    await runs.end(record, ENDING)
    runs.release(record)
    await runs.begin(record, continues=ENDING)
    runs.follow(record, later, 2)
    ((key,),) = sql(postgres_database, "SELECT key FROM holodeck.runs")
    shown = [(0, [EVENTS[0], ENDING])]
    async with asyncio.timeout(50):
        for event in (EVENTS[1], ENDING):
            while await events(other, log=(RUN, key)) != shown:
                await asyncio.sleep(0.01)
            later.append(event)
            shown.append((len(shown) + 1, [event]))
        runs.release(record)
        while await events(other, log=(RUN, key)) != shown:
            await asyncio.sleep(0.01)
    await runs._copier.close()
    assert (runs._logs, runs._keys, runs._records) == ({}, {}, {})


async def test_a_process_is_asked_once_to_hurry_a_run_and_its_heartbeat_finds_the_later_notes(
    linked_store, postgres_database, url
):
    owner, record = linked_store.runs, RunRecord(run_id="r", owner=ME, session_id="s")
    other, asked = on_database(postgres_database, "tester"), asyncio.Queue()
    owner.on_pulse = lambda pulse: asked.put_nowait(pulse.followed)
    other.runs.connect(ValkeyLink(url, "tester", other.runs.replica, replay_window=120, seconds=30))
    await other.start()
    try:
        await owner.begin(record)
        owner.follow(record, log := RunLog())
        log.append(EVENTS[0])
        for _ in range(3):
            await other.runs.note_followed([RUN])
        await other.runs.want_stop(record)  # a later message: then those before it have arrived
        assert [await asyncio.wait_for(asked.get(), 50) for _ in range(2)] == [[RUN], ()]
        (copy,) = owner._copier._copies.values()
        copy.is_hurried = False
        assert (await owner.beat()).followed == [RUN]
        assert copy.is_hurried, "the message may have been lost"
        other.runs.stop_waiting(record)
        await other.runs.note_followed([RUN])
        assert await asyncio.wait_for(asked.get(), 50) == [RUN], "a reader that comes later asks again"
    finally:
        await other.close()


async def test_runs_are_taken_over_while_valkey_does_not_answer(postgres_database, url):
    """The take-over is part of the heartbeat: if it waited, the process would end its own runs and count as dead."""
    sealed, answers = [], asyncio.Event()

    class Silent(ValkeyLink):
        async def seal(self, parts):
            sealed.append([(name[0][1], block) for name, block in parts])
            await answers.wait()

    dead, taker = stores = [on_database(postgres_database, "tester") for _ in range(2)]
    taker.runs.connect(Silent(url, "tester", taker.runs.replica, replay_window=120, seconds=30))
    try:
        for store in stores:
            await store.start()
        for number in range(3):
            await dead.runs.begin(RunRecord(run_id=f"r{number}", owner=ME, session_id=f"s{number}"))
        await dead.runs.leave()
        taken = await asyncio.wait_for(taker.runs.take_over(10), 50)
        assert ([each.run_id for each in taken], sealed) == (["r0", "r1", "r2"], [])
        answers.set()
        await taker.runs.seal(taken)
        assert sealed == [[("r0", 0), ("r1", 0), ("r2", 0)]], "in one round trip"
    finally:
        for store in stores:
            await store.close()


async def test_a_valkey_that_is_away_is_not_asked_to_seal(linked, monkeypatch):
    link, asked = await linked(), []
    monkeypatch.setattr(link, "_tried", asked.append)
    link.lost(TimeoutError())
    await link.seal([(LOG, 0), (OTHER, 0)])
    assert asked == []


# the line: pieces of logs that lack nothing before them


async def test_the_library_has_the_undocumented_member_that_the_line_uses(url):
    """pyproject.toml pins its minor version for this member."""
    connection = pool_of(url, seconds=30, answer_seconds=30, max_connections=1).make_connection()
    await connection.connect()
    assert isinstance(connection._writer.transport, asyncio.Transport)
    await connection.disconnect()


@pytest.fixture
async def at_once(linked):
    """Adds pieces without a task; returns whether the link tried it, and the outcome."""
    link = await linked()
    await link.append([piece(0, EVENTS[:2])])

    async def add(*pieces):
        outcome = asyncio.get_running_loop().create_future()
        begun = link.append_at_once(pieces, lambda is_stored: outcome.done() or outcome.set_result(is_stored))
        return await asyncio.wait_for(outcome, 50) if begun else None

    return link, add


async def test_pieces_of_logs_from_beginning_to_end_are_added_without_a_task(at_once, url):
    link, add = at_once
    assert await add(piece(2, EVENTS[2:4]), piece(0, EVENTS[:1], OTHER)) is True
    assert await add(piece(4, EVENTS[4:]), piece(1, EVENTS[1:3], OTHER)) is True
    assert await add(piece(len(EVENTS), [ENDING])) is True
    assert await events(link) == [(0, EVENTS[:2]), (2, EVENTS[2:4]), (4, EVENTS[4:]), (len(EVENTS), [ENDING])]
    assert await events(link, log=OTHER) == [(0, EVENTS[:1]), (1, EVENTS[1:3])]
    with Redis.from_url(url) as client:
        lives = sorted(client.ttl(key) for key in client.keys("*:log:*"))
    assert lives[0] <= 120 < lives[1], "only the log that has ended is kept for the replay window"


async def test_an_ending_after_a_crash_and_a_log_that_may_lack_its_end_take_the_other_way(at_once):
    link, add = at_once
    assert await add() is None
    assert await add(piece(PART_STRIDE, [ENDING])) is None, "the parts before it get a time limit"
    link.lost(LostConnection("failover"), retry_seconds=0)
    assert await add(piece(2, EVENTS[2:4])) is None
    assert await link.append([piece(2, EVENTS[2:4])]) == set()
    assert await add(piece(4, EVENTS[4:])) is True


@pytest.mark.parametrize("fault", ["emptied", "scripts forgotten", "connection closed", "full"])
async def test_pieces_that_valkey_does_not_add_at_once_are_added_by_the_copier(at_once, url, fault):
    link, add = at_once
    with Redis.from_url(url) as client:
        if fault == "emptied":
            client.flushall()
        elif fault == "scripts forgotten":
            client.script_flush()
        elif fault == "full":
            client.config_set("maxmemory", 1)
        else:
            client.client_kill_filter(_type="normal", skipme=True)
        assert not await add(piece(2, EVENTS[2:4])), "False, or None if the closed connection was noticed before"
        client.config_set("maxmemory", 0)
    assert link.is_up or fault == "connection closed", "the other way finds out what it means"
    gone = {RUN} if fault == "emptied" else set()
    async with asyncio.timeout(50):
        while (found := await link.append([piece(2, EVENTS[2:4])])) is None:  # pooled connections were closed too
            link.lost(LostConnection("closed"), retry_seconds=0)
    assert found == gone
    if not gone:
        assert await add(piece(4, EVENTS[4:])) is True, "it is connected again"
        assert await events(link) == [(0, EVENTS[:2]), (2, EVENTS[2:4]), (4, EVENTS[4:])]


async def test_an_answer_may_come_in_parts_and_silence_closes_the_connection(url):
    pool = pool_of(url, seconds=30, answer_seconds=30, max_connections=1)
    line, outcome = ValkeyLine(pool, seconds=0.01), asyncio.Queue()
    await line.connect()
    line.ask(("BLPOP", "never", 0), b"*1\r\n:1\r\n", outcome.put_nowait)
    assert not line.is_free
    for part in (b"*1\r", b"\n:1", b"\r\n"):
        assert outcome.empty()
        line.data_received(part)
    assert outcome.get_nowait() is True
    line.ask(("BLPOP", "never", 0), b"+OK\r\n", outcome.put_nowait)
    assert await asyncio.wait_for(outcome.get(), 50) is False
    assert not line.is_free
    await line.connect()
    before = line._transport
    line.drop()
    assert before.get_protocol() is not line, "its end does not close the next connection"
    await line.connect()
    line.ask(("SET", "k", "ä"), b"+OK\r\n", outcome.put_nowait)
    assert await asyncio.wait_for(outcome.get(), 50) is True
    await line.close()
    await pool.aclose()
