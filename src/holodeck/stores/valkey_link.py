"""Messages through Valkey between processes that share a database: the logs of their runs, and requests about runs.

Valkey holds only a copy of what a run's process has in memory, to deliver it faster. Nothing that was acknowledged
depends on it, and while it is down the database carries both. Keys contain a hash of the run's owner, never a client's
text.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError, ResponseError

from holodeck.core.cancellations import noticing_cancellation
from holodeck.core.events import ENDINGS
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import StartError
from holodeck.runs.recovery import PART_STRIDE
from holodeck.stores.log_copier import LogPiece
from holodeck.stores.valkey_line import ValkeyLine
from holodeck.valkey_pool import pool_of

log = logging.getLogger(__name__)

SECONDS = 2.0  # for one round trip
RETRY_SECONDS = 2.0  # between two attempts while it is down
AWAY_SECONDS = 15.0  # after a failure, until `is_away` ends; the next attempt comes earlier
LOG_SECONDS = 60.0  # between two log lines while it is down
LIFE_SECONDS = 24 * 3600  # how long the log of a run that never ends is kept
INBOX_SECONDS, INBOX_LENGTH = 3600, 1000
NEWS_SECONDS = 60  # how long the last news of a session is kept: its watchers have it by then, or ask the database
BLOCK_MILLISECONDS = 5000
LOGS_AT_ONCE = 200  # logs that one command adds to: Valkey does nothing else meanwhile, about a millisecond
BLOCKS = 3  # parts of a run that one command searches; a run is taken over only once, so there are few
MAX_CONNECTIONS = 8
STOP, FOLLOW, LOOK = "stop", "follow", "look"
_LAST_ID = "18446744073709551615-18446744073709551615"
_SEALED = b"sealed"
_MUST_EXIST = "NOMKSTREAM"
_EVICTS = ("allkeys", "volatile")  # all of our keys have an expiry
# Adds all new pieces of many logs, then an entry to each session with a run that began or ended. ARGV: how long such an
# entry is kept; for each log the entry's id, first number and body, how long the log is kept, whether it has to exist.
# Returns 0 for a log that is gone. XADD refuses ids that are not above the last one: then the log is sealed, or has the
# piece. One command replaces two for each log: a client library takes ten times as long for a command as Valkey does.
_APPEND = """
local answers, logs = {}, (#ARGV - 1) / 5
for n = 1, logs do
  local at, added = 5 * n - 3, nil
  if ARGV[at + 4] == '' then
    added = redis.pcall('XADD', KEYS[n], ARGV[at], 'f', ARGV[at + 1], 'e', ARGV[at + 2])
  else
    added = redis.pcall('XADD', KEYS[n], ARGV[at + 4], ARGV[at], 'f', ARGV[at + 1], 'e', ARGV[at + 2])
  end
  local refused = type(added) == 'table' and added.err
  if refused and not string.find(refused, 'equal or smaller', 1, true)
      and not string.find(refused, 'exhausted the last possible ID', 1, true) then
    return redis.error_reply(refused)
  end
  redis.call('EXPIRE', KEYS[n], ARGV[at + 3])
  answers[n] = added and 1 or 0
end
for n = logs + 1, #KEYS do
  redis.call('XADD', KEYS[n], 'MAXLEN', 1, '*', 'r', 1)
  redis.call('EXPIRE', KEYS[n], ARGV[1])
end
return answers
"""
_ERRORS = (RedisError, OSError, TimeoutError)

OnCommand: TypeAlias = Callable[[str, OwnedId], None]
LogName: TypeAlias = tuple[OwnedId, int]
"""A run, and the number of its row: a deleted run may have had the same id."""


class ValkeyLink:
    def __init__(self, url: str, agent: str, replica: str, *, replay_window: float, seconds: float = SECONDS) -> None:
        """Raises ValueError for an invalid address."""
        pool = pool_of(url, seconds=seconds, answer_seconds=seconds, max_connections=MAX_CONNECTIONS)
        self._client: Redis = Redis.from_pool(pool)
        self._append: AsyncScript = self._client.register_script(_APPEND)
        self._line = ValkeyLine(pool, seconds=seconds)
        answer_seconds = seconds + BLOCK_MILLISECONDS / 1000
        self._listener: Redis = Redis.from_pool(
            pool_of(url, seconds=seconds, answer_seconds=answer_seconds, max_connections=2)
        )
        self._agent, self._replica, self._replay_seconds = agent, replica, max(1, round(replay_window))
        self._down_until, self._lost_at, self._logged_at = 0.0, -math.inf, -LOG_SECONDS
        self._complete: set[str] = set()  # logs that are known to be complete there, since it was last down
        self._watched: dict[bytes, tuple[str, asyncio.Event]] = {}  # stream → the last id that was seen, its event
        self._watches: dict[OwnedId, asyncio.Event] = {}
        self._listening: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._sessions: dict[bytes, tuple[str, OwnedId]] = {}  # watched sessions, and the last id that was seen
        self.on_command: OnCommand = lambda _command, _run: None
        self.on_session: Callable[[OwnedId], None] = lambda _session: None  # a run of it has begun or ended

    @property
    def is_up(self) -> bool:
        return time.monotonic() >= self._down_until

    @property
    def is_away(self) -> bool:
        """Whether it failed a moment ago: the listener asks it all the time, also while nothing is sent."""
        return time.monotonic() - self._lost_at < AWAY_SECONDS

    async def start(self) -> None:
        """Connects. Raises StartError if Valkey cannot be reached. Idempotent."""
        if self._listening is not None:
            return
        try:
            await self._client.ping()
            policy = (await self._client.config_get("maxmemory-policy")).get("maxmemory-policy") or ""
        except ResponseError:  # managed ones refuse CONFIG
            policy = ""
        except _ERRORS as error:
            raise StartError(f"the Valkey of cluster.valkey cannot be reached: {_words_of(error)}") from error
        if policy.startswith(_EVICTS):
            log.warning(
                "cluster.valkey evicts keys (maxmemory-policy %s): streams that are read elsewhere may have gaps;"
                " set it to noeviction",
                policy,
            )
        self._listening = asyncio.create_task(self._listen(), name="valkey inbox")

    async def close(self) -> None:
        if self._listening is not None:
            while not self._listening.done():  # a cancellation at the moment in which a read succeeds is lost
                self._listening.cancel()
                await asyncio.wait({self._listening}, timeout=1)
            self._listening = None
        for close in (self._line.close, self._client.aclose, self._listener.aclose):
            with contextlib.suppress(*_ERRORS):
                await close()

    # logs

    async def append(self, pieces: Sequence[tuple[LogName, LogPiece]]) -> set[OwnedId] | None:
        """Adds pieces to the logs of their runs. None if Valkey is down or refuses one of them.

        Returns the runs whose log has disappeared from Valkey, so that it must be copied from its beginning.
        """
        incomplete = await self._incomplete(pieces) if self.is_up else None
        if incomplete is None:
            return None
        pieces = [(name, piece) for name, piece in pieces if piece.run not in incomplete]
        gone = set(incomplete)
        for first in range(0, len(pieces), LOGS_AT_ONCE):
            some = pieces[first : first + LOGS_AT_ONCE]
            answers = await self._tried(self._append(*self._entries(some)))
            if answers is None:
                return None
            gone |= {piece.run for (_, piece), is_there in zip(some, answers, strict=True) if not is_there}
        await self._expire_cut_parts([(name, piece) for name, piece in pieces if _has_ended(piece)])
        with contextlib.suppress(*_ERRORS):  # then the next pieces come this way too
            await self._line.connect()
        return gone

    async def _expire_cut_parts(self, ended: Sequence[tuple[LogName, LogPiece]]) -> None:
        """Keeps the parts before a crash as long as the last one. A cut part has no ending that limits its life."""
        cut = [self._key(name, block) for name, piece in ended for block in range(piece.first // PART_STRIDE)]
        if cut:
            pipeline = self._client.pipeline(transaction=False)
            for key in cut:
                pipeline.expire(key, self._replay_seconds)
            await self._tried(pipeline.execute(raise_on_error=False))

    def append_at_once(self, pieces: Sequence[tuple[LogName, LogPiece]], done: Callable[[bool], None]) -> bool:
        """Adds pieces to logs that lack nothing before them, for a third of the CPU. False if that is not possible now.

        Calls `done`. After `done(False)`, `append` has to add them.
        """
        if not (pieces and self.is_up and self._line.is_free and len(pieces) <= LOGS_AT_ONCE):
            return False
        if not all(self._needs_one_command(name, piece) for name, piece in pieces):
            return False
        keys, arguments = self._entries(pieces)
        words = "EVALSHA", self._append.sha, len(keys), *keys, *arguments
        self._line.ask(words, b"*%d\r\n" % len(pieces) + b":1\r\n" * len(pieces), done)
        return True

    def _needs_one_command(self, name: LogName, piece: LogPiece) -> bool:
        """Not if the log may lack its end, nor if the parts before a crash get their time limit with this piece."""
        block = piece.first // PART_STRIDE
        if block and _has_ended(piece):
            return False
        return piece.is_beginning or self._key(name, block) in self._complete

    def _entries(self, pieces: Sequence[tuple[LogName, LogPiece]]) -> tuple[list[str], list[Any]]:
        """Keys and arguments of the script that adds the pieces."""
        keys: list[str] = []
        arguments: list[Any] = [NEWS_SECONDS]
        news: dict[str, None] = {}
        for name, piece in pieces:
            key, position = self._key(name, piece.first // PART_STRIDE), piece.first % PART_STRIDE
            entry = f"{position + len(piece.events)}-0"  # so the one that holds event n is the first above n-0
            has_ended = _has_ended(piece)
            life = self._replay_seconds if has_ended else LIFE_SECONDS
            keys.append(key)
            arguments += [entry, piece.first, piece.body, life, "" if piece.is_beginning else _MUST_EXIST]
            (self._complete.discard if has_ended else self._complete.add)(key)
            if piece.session and (has_ended or piece.is_beginning):
                news[self._session_key((piece.run[0], piece.session))] = None
        return [*keys, *news], arguments

    async def _incomplete(self, pieces: Sequence[tuple[LogName, LogPiece]]) -> set[OwnedId] | None:
        """The runs whose log has lost its end: a replica became the primary before it had received it.

        None if Valkey is down.
        """
        keys = {self._key(name, piece.first // PART_STRIDE): piece for name, piece in pieces if not piece.is_beginning}
        doubtful = [key for key in keys if key not in self._complete]
        if not doubtful:
            return set()
        pipeline = self._client.pipeline(transaction=False)
        for key in doubtful:
            pipeline.xrevrange(key, count=1)
        found = await self._tried(pipeline.execute(raise_on_error=False))
        if found is None:
            return None
        ends = [
            int(entries[0][0].partition(b"-")[0]) if isinstance(entries, list) and entries else 0 for entries in found
        ]
        return {keys[key].run for key, end in zip(doubtful, ends, strict=True) if end < keys[key].first % PART_STRIDE}

    async def read(self, log_name: LogName, first: int) -> list[tuple[int, bytes]]:
        """Numbers and bodies of the pieces that hold event `first` of a run's log or later ones.

        Empty if Valkey is down.
        """
        if not self.is_up:
            return []
        block = first // PART_STRIDE
        pipeline = self._client.pipeline(transaction=False)
        for number in range(block, block + BLOCKS):
            pipeline.xrange(self._key(log_name, number), min=f"{first % PART_STRIDE + 1 if number == block else 0}-0")
        found = await self._tried(pipeline.execute(raise_on_error=False)) or []
        entries = [fields for part in found if isinstance(part, list) for _, fields in part]
        return [(int(fields[b"f"]), fields[b"e"]) for fields in entries if b"e" in fields]

    async def seal(self, parts: Sequence[tuple[LogName, int]]) -> None:
        """Seals these parts of logs, so that nothing can be added: their processes are considered dead.

        All in one round trip: a Valkey that does not answer costs its time limit once, not once for each run.
        """
        if not (parts and self.is_up):
            return
        pipeline = self._client.pipeline(transaction=False)
        for key in [self._key(log_name, block) for log_name, block in parts]:
            pipeline.xadd(key, {_SEALED: "1"}, id=_LAST_ID)
            pipeline.expire(key, LIFE_SECONDS)
        await self._tried(pipeline.execute(raise_on_error=False))

    async def wait(self, log_name: LogName, first: int, seconds: float) -> None:
        """Waits at most `seconds` until there may be more of a run's log."""
        block, run = first // PART_STRIDE, log_name[0]
        changed = self._watches.get(run)
        if changed is None:
            changed = self._watches[run] = asyncio.Event()
        positions = {self._key(log_name, block): f"{first % PART_STRIDE}-0", self._key(log_name, block + 1): "0-0"}
        new = {key.encode(): position for key, position in positions.items() if key.encode() not in self._watched}
        if new:
            self._watched |= {key: (position, changed) for key, position in new.items()}
            await self.send(self._replica, LOOK, run)  # so that the listener listens there too
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # `wait_for` may lose a cancellation
                await changed.wait()
        changed.clear()

    def stop_waiting(self, run: OwnedId) -> None:
        """Stops following the run."""
        changed = self._watches.pop(run, None)
        self._watched = {key: watch for key, watch in self._watched.items() if watch[1] is not changed}

    # sessions

    def watch_session(self, session: OwnedId) -> None:
        """Starts to call `on_session` when a run of the session begins or ends in another process."""
        self._sessions[self._session_key(session).encode()] = "0-0", session
        task = asyncio.create_task(self.send(self._replica, LOOK, session))  # so that the listener listens there too
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def stop_watching(self, session: OwnedId) -> None:
        self._sessions.pop(self._session_key(session).encode(), None)

    # commands

    async def send(self, replica: str, command: str, run: OwnedId) -> None:
        """Sends another process a request about its run. It may be lost: the database has it as well."""
        if not self.is_up:
            return
        owner, run_id = run
        fields: dict[Any, Any] = {"wish": command, "tenant": owner.tenant, "user": owner.user, "run": run_id}
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xadd(self._inbox(replica), fields, maxlen=INBOX_LENGTH, approximate=True)
        pipeline.expire(self._inbox(replica), INBOX_SECONDS)
        await self._tried(pipeline.execute(raise_on_error=False))

    async def _listen(self) -> None:
        """One connection for the inbox and for all logs that are followed."""
        inbox, last = self._inbox(self._replica).encode(), b"0-0"
        while True:
            try:
                watched = {name: position for name, (position, _) in (*self._watched.items(), *self._sessions.items())}
                wanted: dict[Any, Any] = {inbox: last, **watched}
                found: Any = await self._listener.xread(wanted, block=BLOCK_MILLISECONDS)
                for name, entries in found:
                    if name == inbox:
                        last = entries[-1][0]
                        for _, fields in entries:
                            self._pass_on(fields)
                    elif name in self._sessions:
                        session = self._sessions[name][1]
                        self._sessions[name] = entries[-1][0].decode(), session
                        self.on_session(session)
                    elif name in self._watched:
                        changed = self._watched[name][1]
                        self._watched[name] = entries[-1][0].decode(), changed
                        changed.set()
            except _ERRORS as error:
                self.lost(error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:  # a message that cannot be read must not end the loop
                log.exception("a message of another process cannot be read")

    def _pass_on(self, fields: dict[bytes, bytes]) -> None:
        command = fields.get(b"wish", b"").decode()
        if command != LOOK:
            tenant, user, run = (fields[name].decode() for name in (b"tenant", b"user", b"run"))
            self.on_command(command, (Owner(tenant, user), run))

    async def _tried(self, work: Any) -> list[Any] | None:
        try:
            answers: list[Any] = await noticing_cancellation(work)
        except _ERRORS as error:
            self.lost(error)
            return None
        return answers

    def lost(self, error: BaseException, retry_seconds: float = RETRY_SECONDS) -> None:
        """Stops using Valkey for a while: it is down, or refuses commands."""
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.warning("cluster.valkey is not available, the database carries the logs: %s", _words_of(error))
        self._down_until, self._lost_at = now + retry_seconds, now
        self._complete.clear()
        self._line.drop()  # the primary may have changed

    def _key(self, log_name: LogName, block: int) -> str:
        (owner, run_id), number = log_name
        return f"hd:1:{{{_hashed(self._agent, owner.tenant, owner.user, run_id, number)}}}:log:{block}"

    def _session_key(self, session: OwnedId) -> str:
        owner, session_id = session
        return f"hd:1:{{{_hashed(self._agent, owner.tenant, owner.user, session_id)}}}:runs"

    def _inbox(self, replica: str) -> str:
        return f"hd:1:in:{replica}"


def _has_ended(piece: LogPiece) -> bool:
    return bool(piece.events) and type(piece.events[-1]) in ENDINGS


@lru_cache(maxsize=1000)  # names of runs in progress and of their sessions; one takes 350 bytes here, 1 µs to hash
def _hashed(*name: str | int) -> str:
    return hashlib.sha256(msgspec.json.encode(name)).hexdigest()[:32]


def _words_of(error: BaseException) -> str:
    """The first line of a message, without the representation of a client, which follows if no Sentinel answers."""
    return (str(error).splitlines() or [type(error).__name__])[0].partition(" : <")[0]
