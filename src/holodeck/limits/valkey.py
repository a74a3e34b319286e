"""Windows in Valkey (or Redis). One script handles all windows of a request, so replicas count together and exactly.

Subjects are hashed: no text of a client becomes part of a key.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec

from holodeck.limits.window import Full, Level, MemoryWindows, StoreDown, Taken, Use, Window

if TYPE_CHECKING:
    from redis.commands.core import AsyncScript

T = TypeVar("T")

log = logging.getLogger(__name__)

WhenDown: TypeAlias = Literal["local", "refuse"]
SECONDS = 1.0  # seconds per round trip
MAX_CONNECTIONS = 16
RETRY_SECONDS = 5.0  # between two attempts while the store is down
_COMPLAIN_EVERY = 60.0

# Each window is a hash of buckets. ARGV[1] is 1 to ask for room, 0 to settle, 2 to read; then, for each key: amount,
# limit, milliseconds of the window and of its grain, whether less may be taken.
SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for i, key in ipairs(KEYS) do
  local amount, limit = tonumber(ARGV[i * 5 - 3]), tonumber(ARGV[i * 5 - 2])
  local window, grain = tonumber(ARGV[i * 5 - 1]), tonumber(ARGV[i * 5])
  local length, at = math.ceil(window / grain), math.floor(now / grain)
  local raw, buckets, sum = redis.call('HGETALL', key), {}, 0
  for j = 1, #raw, 2 do
    local bucket = tonumber(raw[j])
    if bucket < at - length then
      redis.call('HDEL', key, raw[j])
    else
      buckets[#buckets + 1] = {bucket, tonumber(raw[j + 1])}
      sum = sum + tonumber(raw[j + 1])
    end
  end
  table.sort(buckets, function(a, b) return a[1] < b[1] end)
  local wanted, partly = amount, ARGV[i * 5 + 1] == '1'
  if partly then
    wanted, amount = math.min(1, amount), math.min(amount, limit - sum)
  end
  local last = #buckets > 0 and (buckets[#buckets][1] + length + 1) * grain - now or 0
  found[i] = {key, amount, at, buckets, window + grain, limit - sum - amount, (length + 1) * grain}
  if ARGV[1] == '2' then
    found[i] = {sum, last}
  elseif ARGV[1] == '1' and sum + wanted > limit then
    local over, wait = sum + wanted - limit, window
    for _, bucket in ipairs(buckets) do
      over = over - bucket[2]
      if over <= 0 then
        wait = (bucket[1] + length + 1) * grain - now
        break
      end
    end
    return {-1, i, wait}
  end
end
if ARGV[1] == '2' then
  return found
end
local taken = {}
for i, each in ipairs(found) do
  taken[i] = {each[2], each[6], each[7]}
  local key, amount, at, buckets, life = each[1], each[2], each[3], each[4], each[5]
  if amount >= 0 then
    redis.call('HINCRBY', key, at, amount)
  else
    local back = -amount
    for j = #buckets, 1, -1 do
      local part = math.min(back, buckets[j][2])
      if part == buckets[j][2] then
        redis.call('HDEL', key, buckets[j][1])
      else
        redis.call('HINCRBY', key, buckets[j][1], -part)
      end
      back = back - part
      if back == 0 then break end
    end
  end
  redis.call('PEXPIRE', key, life)
end
return taken
"""
_TAKE, _SETTLE, _LEVELS = "1", "0", "2"
_REFUSED = -1


class ValkeyWindows:
    """Counts in the store. While the store is down, counts in this process if the agent's file allows it.

    Then each process allows its part of a limit, if it knows how many share it.
    """

    def __init__(self, url: str, when_down: WhenDown = "local", *, seconds: float = SECONDS) -> None:
        """`seconds` limits one round trip. A burst shares a few connections instead of opening many."""
        from redis.asyncio import Redis  # noqa: PLC0415  an extra
        from redis.exceptions import RedisError  # noqa: PLC0415

        from holodeck.valkey_pool import pool_of  # noqa: PLC0415

        pool = pool_of(
            url,
            seconds=seconds,
            answer_seconds=seconds,
            wait_seconds=5 * seconds,
            max_connections=MAX_CONNECTIONS,
        )
        self._client: Redis = Redis.from_pool(pool)
        self._errors = (RedisError, OSError, TimeoutError)
        self._scripts: dict[str, AsyncScript] = {}
        self._when_down, self._local = when_down, MemoryWindows()
        self._settling: set[asyncio.Task[Any]] = set()
        self._down_until = 0.0
        self.processes: Callable[[], int] = lambda: 1  # how many share the limits, as far as this one knows
        self._complained = -_COMPLAIN_EVERY

    @property
    def up(self) -> bool:
        return time.monotonic() >= self._down_until

    async def take(self, uses: Sequence[Use]) -> Taken | Full:
        return await whole(self._take(uses), partial(self._undo, uses), self._settling)

    def _undo(self, uses: Sequence[Use], taken: Taken | Full) -> None:
        """Gives back reservations. A request counts even if its client did not wait: its limit could be evaded."""
        amounts = taken.amounts if isinstance(taken, Taken) else [0] * len(uses)
        if back := [Use(use.window, -n) for use, n in zip(uses, amounts, strict=True) if use.partly and n]:
            self.settle(back)

    async def _take(self, uses: Sequence[Use]) -> Taken | Full:
        answer = await self._ask(_TAKE, uses)
        if answer is None:
            return await self._local.take(
                [msgspec.structs.replace(use, window=self._part_of(use.window)) for use in uses]
            )
        if answer[0] == _REFUSED:
            _, number, wait = answer
            return Full(uses[number - 1].window, wait / 1000)
        levels = [
            Level(use.window, max(0, left), reset / 1000) for use, (_, left, reset) in zip(uses, answer, strict=True)
        ]
        return Taken([amount for amount, _, _ in answer], levels)

    def settle(self, uses: Sequence[Use]) -> None:
        in_background(self._settle(uses), self._settling)

    async def _settle(self, uses: Sequence[Use]) -> None:
        """Gives back here first: what was counted here while the store was down, others did not use there."""
        uses = self._local.give_back(uses)
        with contextlib.suppress(StoreDown):
            if uses and await self._ask(_SETTLE, uses) is None:
                self._local.settle(uses)

    async def levels(self, windows: Sequence[Window]) -> list[Level]:
        answer = await self._ask(_LEVELS, [Use(window, 0) for window in windows])
        if answer is None:
            return await self._local.levels([self._part_of(window) for window in windows])
        levels = zip(windows, answer, strict=True)
        return [Level(window, max(0, window.limit - used), max(0, reset) / 1000) for window, (used, reset) in levels]

    def _part_of(self, window: Window) -> Window:
        return msgspec.structs.replace(window, limit=self.part_of(window.limit))

    def part_of(self, limit: int) -> int:
        """What this process allows while the store is down: without the others, no more than the limit together."""
        return max(min(1, limit), limit // self.processes())

    async def ping(self) -> None:
        """Raises StoreDown if the store does not answer."""
        try:
            await self._client.ping()
        except self._errors as error:
            raise StoreDown(str(error)) from error

    async def close(self) -> None:
        await all_done(self._settling)
        await self._client.aclose()

    async def _ask(self, what: str, uses: Sequence[Use]) -> Any:
        """Runs the script and returns its answer. None if the store is down and this process has to count."""
        arguments: list[str | int] = [what]
        for use in uses:
            window = use.window
            arguments += [use.amount, window.limit, round(window.seconds * 1000), round(window.grain * 1000)]
            arguments.append(int(use.partly))
        return await self.run_script(SCRIPT, [key_of(use.window.name, use.window.subject) for use in uses], arguments)

    async def run_script(self, script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Runs a script and returns its answer.

        None while the store is down, or StoreDown if the agent's file requires it.
        """
        if not self.up:
            return self._without_store()
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self._client.register_script(script)
        try:
            return await known(keys=list(keys), args=list(arguments))
        except self._errors as error:
            self._down_until = time.monotonic() + RETRY_SECONDS
            self._complain(error)
            return self._without_store()

    def _without_store(self) -> None:
        if self._when_down == "refuse":
            raise StoreDown("The store of the limits (limits.store) cannot be reached.")

    def _complain(self, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            details = {"error": type(error).__name__, "then": self._when_down, "processes": self.processes()}
            log.error("limits_store_down", extra={"details": details})


def in_background(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """Starts a task, which is in `tasks` until it is done."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def whole(work: Coroutine[Any, Any, T], undo: Callable[[T], None], tasks: set[asyncio.Task[Any]]) -> T:
    """Awaits a change of the store. If the caller is cancelled, the store may have made it: `undo` gets its result."""
    task = in_background(work, tasks)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: None if done.cancelled() or done.exception() else undo(done.result()))
        raise


async def all_done(tasks: set[asyncio.Task[Any]]) -> None:
    """Waits a moment for tasks, and for those that they start."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * SECONDS):
            while tasks:
                await asyncio.wait(tasks)


def key_of(name: str, subject: str) -> str:
    """The key of a window or a lease.

    All windows of a request must be in one slot despite several subjects: they share a hash tag.
    """
    hashed = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"hd:1:{{limits}}:{name}:{hashed}"
