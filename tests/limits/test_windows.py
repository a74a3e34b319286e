"""One contract for windows in this process and in a real Valkey."""

import asyncio
import math
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.limits.leases import Lease, MemoryLeases, Share, ValkeyLeases
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import DAY, MAX_WINDOWS, MINUTE, Buckets, Full, MemoryWindows, StoreDown, Taken, Use, Window
from tests.examples import examples
from tests.limits.valkey_server import valkey
from tests.store_faults.failover_backends import valkey_trio


@pytest.fixture(scope="module")
def url():
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as address:  # a socket's path must be short
        yield address


@pytest.fixture(params=["memory", "valkey"])
async def store(request, url):
    made = MemoryWindows() if request.param == "memory" else ValkeyWindows(url, seconds=30)
    yield made
    await made.close()


@pytest.fixture
def window(request):
    def make(limit=3, seconds=DAY, name="user-requests", subject=""):
        return Window(name, f"{request.node.name} {subject}", limit, seconds)

    return make


async def taken(store, *uses):
    found = await store.take(uses)
    assert isinstance(found, Taken)
    assert [level.window for level in found.levels] == [use.window for use in uses]
    assert all(level.left >= 0 for level in found.levels)
    return found.amounts


async def settled(store):
    """`settle` does not wait; a look afterwards does."""
    await asyncio.sleep(0)
    for task in list(getattr(store, "_settling", ())):
        await task


async def test_a_window_lets_its_limit_through(store, window):
    one = window(3)
    assert [await taken(store, Use(one, 1)) for _ in range(3)] == [[1]] * 3
    full = await store.take([Use(one, 1)])
    assert isinstance(full, Full)
    assert full.window == one
    assert 0 < full.wait <= DAY + 900
    (level,) = await store.levels([one])
    assert level.left == 0
    assert level.reset > 0


async def test_a_refused_request_costs_nothing_in_any_window(store, window):
    wide, narrow = window(100, subject="wide"), window(1, subject="narrow")
    assert await taken(store, Use(wide, 1), Use(narrow, 1)) == [1, 1]
    for _ in range(5):
        assert (await store.take([Use(wide, 1), Use(narrow, 1)])).window == narrow
    assert [level.left for level in await store.levels([wide, narrow])] == [99, 0]


async def test_a_reservation_takes_what_is_left_and_gives_back_what_was_not_used(store, window):
    budget = window(1000, name="user-tokens")
    assert await taken(store, Use(budget, 600, partly=True)) == [600]
    assert await taken(store, Use(budget, 600, partly=True)) == [400]
    assert isinstance(await store.take([Use(budget, 600, partly=True)]), Full)
    store.settle([Use(budget, -550)])
    await settled(store)
    (level,) = await store.levels([budget])
    assert level.left == 550
    store.settle([Use(budget, 5000)])  # used more than was reserved
    await settled(store)
    assert (await store.levels([budget]))[0].left == 0
    assert isinstance(await store.take([Use(budget, 1, partly=True)]), Full)


async def test_more_is_given_back_than_there_is(store, window):
    budget = window(10)
    store.settle([Use(budget, -5)])
    await settled(store)
    assert (await store.levels([budget]))[0].left == 10


@pytest.mark.req("T06")
async def test_subjects_and_names_are_apart(store, window):
    """A19: whatever a subject is called."""
    for subject in ("a", "b", "{x}", "*", "a\nb", "'; DROP", "\x00", "é" * 100, ":", "a:b"):
        assert await taken(store, Use(window(1, subject=subject), 1)) == [1]
        assert await taken(store, Use(window(1, name="user-tokens", subject=subject), 1)) == [1]


async def test_exactly_the_limit_passes_at_once(store, window):
    """A63, one replica."""
    one = window(100)
    found = await asyncio.gather(*(store.take([Use(one, 1), Use(window(1000, subject="t"), 1)]) for _ in range(400)))
    assert sum(not isinstance(each, Full) for each in found) == 100


REPLICA = """
import asyncio, sys
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import Full, Use, Window

async def main():
    store = ValkeyWindows(sys.argv[1], seconds=30)
    windows = [Window(f"{kind}-requests", sys.argv[2], 100, 86400.0) for kind in ("address", "key", "user")]
    sys.stdin.readline()
    found = await asyncio.gather(*(store.take([Use(each, 1) for each in windows]) for _ in range(500)))
    print(sum(not isinstance(each, Full) for each in found))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.req("T30", "ORC-11")
@pytest.mark.parametrize("round_", range(3))
def test_two_replicas_let_exactly_the_limit_through(url, round_):
    """A63: 1,000 at once at a limit of 100, over two processes."""
    replicas = [
        subprocess.Popen(
            [sys.executable, "-c", REPLICA, url, f"replicas {round_}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for replica in replicas:
        replica.stdin.write(b"\n")
        replica.stdin.flush()
    passed = [int(replica.communicate(timeout=60)[0]) for replica in replicas]
    assert sum(passed) == 100


@examples(200)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from([0, 0.5, 1, 3, 30, 59, 60, 61, 62]), st.integers(1, 4)), max_size=40),
)
def test_a_minute_never_lets_more_through_and_is_right_about_the_wait(limit, uses):
    now = 1000.0

    async def play():
        nonlocal now
        store, every_use, window = MemoryWindows(lambda: now), [], Window("x", "y", limit, MINUTE)
        for passed, amount in uses:
            now += passed
            found = await store.take([Use(window, amount)])
            used = sum(size for at, size in every_use if at > now - MINUTE)
            if isinstance(found, Full):
                late = sum(size for at, size in every_use if at > now - MINUTE - 2)  # refuses at most a grain too long
                assert late + amount > limit
                if amount <= limit:
                    now += math.ceil(found.wait)
                    assert not isinstance(await store.take([Use(window, amount)]), Full)
                    every_use.append((now, amount))
            else:
                assert used + amount <= limit
                every_use.append((now, amount))

    asyncio.run(play())


def test_memory_does_not_grow_with_use():
    buckets = Buckets(Window("x", "y", 10**9, DAY))
    for second in range(0, 200_000, 5):
        buckets.forget(float(second))
        buckets.add(float(second), 1)
    assert len(buckets._buckets) <= 98


@pytest.mark.req("T30")
async def test_ten_thousand_other_names_make_nothing_forgotten(monkeypatch):
    """A67, F5."""
    import holodeck.limits.window as module

    monkeypatch.setattr(module, "MAX_WINDOWS", 100)
    assert MAX_WINDOWS == 100_000
    now = 0.0
    store = MemoryWindows(lambda: now)
    spent = Window("user-tokens", "spender", 10, DAY)
    await store.take([Use(spent, 10)])
    await store.levels([Window("user-tokens", f"name {n}", 10, DAY) for n in range(1000)])
    assert isinstance(await store.take([Use(spent, 1)]), Full)
    assert len(store._windows) <= 102


async def test_a_store_that_is_away_counts_here(tmp_path):
    """A66."""
    window = Window("user-requests", "x", 2, DAY)
    away = ValkeyWindows(f"unix://{tmp_path}/none.sock")
    assert [await taken(away, Use(window, 1)) for _ in range(2)] == [[1], [1]]
    assert isinstance(await away.take([Use(window, 1)]), Full)
    away.settle([Use(window, -1)])
    await settled(away)
    assert (await away.levels([window]))[0].left == 1
    assert not away.up
    await away.close()
    strict = ValkeyWindows(f"unix://{tmp_path}/none.sock", "refuse")
    with pytest.raises(StoreDown):
        await strict.take([Use(window, 1)])
    await strict.close()


async def test_without_the_store_the_replicas_share_a_limit(tmp_path):
    """The limit is 10: three replicas that cannot reach the store allow three each, of runs at a time as well."""
    window, alone = Window("user-requests", "x", 10, DAY), Window("user-requests", "y", 1, DAY)
    away = ValkeyWindows(f"unix://{tmp_path}/none.sock")
    leases = ValkeyLeases(away)
    away.processes = lambda: 3
    assert [type(await away.take([Use(window, 1)])) for _ in range(4)] == [Taken, Taken, Taken, Full]
    assert (await away.levels([window]))[0].window.limit == 3
    assert isinstance(await away.take([Use(alone, 1)]), Taken), "a limit below the number of replicas"
    share = Share("user-runs", "x", 7)
    assert [type(await leases.acquire([share])) for _ in range(3)] == [Lease, Lease, Share]
    await leases.close()
    await away.close()


async def test_the_store_may_be_the_primary_that_sentinels_name():
    use = Use(Window("user-requests", "x", 3, DAY), 1)
    with valkey_trio() as trio:
        urls = trio.url, f"valkey://127.0.0.1:{trio.primary()}"
        stores = [ValkeyWindows(url, seconds=30) for url in urls]
        counted = [await store.take([use]) for store in [*stores, *stores]]
        assert [each.levels[0].left for each in counted[:3]] == [2, 1, 0]
        assert isinstance(counted[3], Full)
        for store in stores:
            await store.close()


async def test_a_store_that_comes_back_is_asked_again(tmp_path, monkeypatch):
    import holodeck.limits.valkey as module

    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    window = Window("user-requests", "x", 100, DAY)
    with tempfile.TemporaryDirectory() as folder:
        store = ValkeyWindows(f"unix://{folder}/valkey.sock")
        await store.take([Use(window, 1)])
        with valkey(Path(folder)):
            await store.take([Use(window, 7)])
            assert (await store.levels([window]))[0].left == 93
        await store.close()


class CancelledAsk:
    """A change of the store whose caller is cancelled after the store has made it, and before the answer is there."""

    def __init__(self, windows, monkeypatch):
        self._made, self._answered, self._run_script = asyncio.Event(), asyncio.Event(), windows.run_script
        self._replace = partial(monkeypatch.setattr, windows, "run_script")

    async def __call__(self, asking):
        self._replace(self._slow)
        task = asyncio.create_task(asking)
        await self._made.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        self._replace(self._run_script)
        self._answered.set()

    async def _slow(self, *asked):
        answer = await self._run_script(*asked)
        self._made.set()
        await self._answered.wait()
        return answer


async def test_a_reservation_is_given_back_if_its_request_is_cancelled_meanwhile(url, window, monkeypatch):
    """The client has closed the connection. The request itself counts: otherwise its limit could be evaded."""
    budget, requests = window(1000, name="user-tokens"), window(5)
    windows, other = ValkeyWindows(url, seconds=30), ValkeyWindows(url, seconds=30)
    await CancelledAsk(windows, monkeypatch)(windows.take([Use(requests, 1), Use(budget, 600, partly=True)]))
    await windows.close()
    assert [level.left for level in await other.levels([requests, budget])] == [4, 1000]
    await other.close()


async def test_a_reservation_that_was_refused_is_not_given_back(url, window, monkeypatch):
    budget = window(1000, name="user-tokens")
    windows, other = ValkeyWindows(url, seconds=30), ValkeyWindows(url, seconds=30)
    assert await taken(other, Use(budget, 1000, partly=True)) == [1000]
    await CancelledAsk(windows, monkeypatch)(windows.take([Use(budget, 600, partly=True)]))
    await windows.close()
    assert [level.left for level in await other.levels([budget])] == [0]
    await other.close()


async def test_a_lease_is_given_back_if_its_request_is_cancelled_meanwhile(url, monkeypatch, request):
    windows, other = ValkeyWindows(url, seconds=30), ValkeyWindows(url, seconds=30)
    leases, share = ValkeyLeases(windows), Share("user-runs", request.node.name, 2)
    await CancelledAsk(windows, monkeypatch)(leases.acquire([share]))
    await leases.close()
    assert await ValkeyLeases(other).held(share) == 0
    await windows.close()
    await other.close()


@pytest.fixture(params=["memory", "valkey"])
async def leases(request, url):
    if request.param == "memory":
        yield MemoryLeases()
        return
    store = ValkeyWindows(url, seconds=30)
    made = ValkeyLeases(store)
    yield made
    await made.close()
    await store.close()


async def test_leases_are_limited_and_come_back(leases, request):
    mine = Share("user-runs", request.node.name, 2)
    wide = Share("tenant-runs", request.node.name, 3)
    held = [await leases.acquire([mine, wide]) for _ in range(2)]
    assert all(isinstance(each, Lease) for each in held)
    assert await leases.acquire([mine, wide]) == mine
    assert [await leases.held(each) for each in (mine, wide)] == [2, 2]
    leases.release(held[0])
    for task in list(getattr(leases, "_tasks", ())):
        await task
    assert isinstance(await leases.acquire([mine, wide]), Lease)


async def test_a_killed_replica_gives_its_leases_back(url, monkeypatch, request):
    """A69."""
    import holodeck.limits.leases as module

    monkeypatch.setattr(module, "LEASE_SECONDS", 2.0)
    store = ValkeyWindows(url, seconds=30)
    killed, other = ValkeyLeases(store), ValkeyLeases(store)
    one = Share("user-runs", request.node.name, 1)
    assert isinstance(await killed.acquire([one]), Lease)
    assert await other.acquire([one]) == one
    async with asyncio.timeout(30):
        while isinstance(await other.acquire([one]), Share):
            await asyncio.sleep(0.02)
    for each in (killed, other):
        await each.close()
    await store.close()


async def test_leases_are_renewed_again_after_the_store_was_down(monkeypatch):
    import holodeck.limits.leases as module

    monkeypatch.setattr(module, "RENEW_SECONDS", 0)
    renewed, down = asyncio.Event(), 3

    class Store:
        async def run_script(self, script, keys, arguments):
            nonlocal down
            if "'XX'" in script and down:
                down -= 1
                raise StoreDown
            if "'XX'" in script:
                renewed.set()
            return 0

    leases = ValkeyLeases(Store())
    await leases.acquire([Share("user-runs", "ann", 1)])
    await asyncio.wait_for(renewed.wait(), 30)
    await leases.close()
    assert down == 0


async def test_what_was_counted_here_while_the_store_was_down_is_not_given_back_there(url, window):
    """The store would forget what others have used."""
    budget = window(1000, name="user-tokens")
    here, other = (ValkeyWindows(url, seconds=30) for _ in range(2))
    await taken(other, Use(budget, 700, partly=True))
    here._down_until = math.inf
    assert await taken(here, Use(budget, 600, partly=True)) == [600], "a replica counts by itself then"
    here._down_until = 0.0
    assert await taken(here, Use(budget, 200, partly=True)) == [200]
    for amount, left in ((-550, 100), (-150, 200)):
        here.settle([Use(budget, amount)])
        await settled(here)
        assert [level.left for level in await other.levels([budget])] == [left]
    for store in (here, other):
        await store.close()
