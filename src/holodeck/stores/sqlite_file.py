"""One SQLite file and the one thread that uses it.

All queued jobs become one transaction, so sixty simultaneous commits cost one flush of the disk. A job is done when its
transaction is: a crash loses nothing that was awaited. A job that raises leaves no trace and harms no other, even if
SQLite refuses a part of it. An error that ends the transaction, or its COMMIT, fails all of its jobs and is not retried
here. No error resets, renames or deletes a file. While the file, its log or the index of the log is deleted or replaced
by another program, every job fails: SQLite would keep writing to the deleted one. Pages are copied from the log into the
file after the jobs are answered.

A read of a few rows needs no thread: `look` does it in the event loop, on a connection of its own. Passing a job to the
thread and back costs ten times as much as such a read.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import queue
import shutil
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias, TypeVar

from holodeck.errors import HoloDeckError, StartError, StorageFull, StoreRefused, StoreUnavailable
from holodeck.stores.migrations import APPLICATION_ID, MIGRATIONS

log = logging.getLogger(__name__)

T = TypeVar("T")
Job: TypeAlias = Callable[[sqlite3.Connection], T]
_Folders: TypeAlias = list[tuple[int, int, int]]
"""The device, the inode and the time of the last change of each folder."""

MAX_BATCH = 256  # jobs in one transaction
CHECKPOINT_COMMITS = 80  # short ones are fewer pages than the 1,000 after which COMMIT itself copies them into the file
VACUUM_PAGES, VACUUM_PAUSE = 1000, 0.02  # 4 MB at a time; seconds between two times, for other writers
LOG_SECONDS = 60.0  # between two log lines while nothing can be stored for the same reason
BUSY_SECONDS = 5.0  # for another process (a chat, a backup) to end its transaction
_TICK = 2_000_000_000  # nanoseconds: the coarsest clock of a file system
_LEAST_ROOM = 64 * 1024  # bytes
_ROOM_TO_START = 1024 * 1024  # bytes: a new file and its log have 340 KiB
MOVED = "{} was deleted or replaced while it was in use; put it back, or restart the server"
LOG, INDEX, LOCK = "-wal", "-shm", ".lock"  # files beside it: its log, the index of the log, and the lock of a server
_OLDEST = (3, 37, 0)  # STRICT tables
OF_AGENT = (
    "+agent = ?"  # the plus sign disables the index: SQLite would prefer it to that of the times, and read all rows
)
OF_OWNER = "agent = ? AND tenant = ? AND user = ?"
NAMED = f"{OF_OWNER} AND id = ?"  # one session, or one run


@dataclass(slots=True)
class _Task:
    job: Callable[[sqlite3.Connection], Any]
    writes: bool
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None
    alone: bool = False  # not in a transaction
    synced: bool = True  # needs its transaction on the disk


class SqliteFile:
    """A file of sessions and runs. `open` and `close` may block; `read` and `write` only queue a job."""

    def __init__(self, path: Path, *, durable: bool = True, exclusive: bool = False) -> None:
        """`durable` flushes the disk with each transaction; `exclusive` keeps a second server out."""
        self.path = path
        self._durable, self.exclusive = durable, exclusive
        self._level = "FULL" if durable else "NORMAL"  # the value of `PRAGMA synchronous`; `prepare` sets it
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: sqlite3.Connection | None = None  # used only in the event loop's thread
        self._commits = 0  # since the last checkpoint
        self._checked_folders: _Folders | None = None  # as they were before the files were checked
        self._logged, self._logged_at = "", -LOG_SECONDS  # why sessions could not be stored, and when that was logged
        self._is_failing = False  # the log says so, and nothing was stored since

    async def open(self) -> None:
        """Opens the file. Raises StartError if it cannot be used, and then leaves it unchanged."""
        self._loop = asyncio.get_running_loop()
        opening = _Task(_nothing, writes=False, future=self._loop.create_future())
        self._thread = threading.Thread(target=self._work, args=(opening,), name=f"store {self.path.name}", daemon=True)
        self._thread.start()
        await opening.future
        # Without a timeout: the event loop never waits for a lock.
        self._reader = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        self._reader.execute("PRAGMA query_only=ON")

    async def close(self) -> None:
        """Finishes all queued jobs. Idempotent."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._thread is not None:
            # From here on `write` refuses: a job behind the end would never be done.
            thread, self._thread = self._thread, None
            self._queue.put(None)
            await asyncio.to_thread(thread.join)

    async def look(self, job: Job[T]) -> T:
        """Runs a job that reads a few rows, in this thread if possible. It may not see jobs that are still queued.

        Its statements are not one transaction: another process may write between two of them.
        """
        if self._reader is None:
            return await self.read(job)  # raises the error of a closed file
        try:
            return job(self._reader)
        except sqlite3.Error:  # locked for a moment, or damaged: the thread waits, and reports
            return await self.read(job)
        except Exception as error:
            _close_cursors(error)
            raise

    def glance(self, job: Job[T]) -> T:
        """Like `look`, but never waits. Raises sqlite3.Error if the file is locked for a moment."""
        if self._reader is None:
            raise StoreUnavailable("The session store is closed.")
        return job(self._reader)

    def read(self, job: Job[T]) -> "asyncio.Future[T]":
        """Queues a job that changes nothing. It sees every job that was queued before it."""
        return self.write(job, changes=False)

    def write(
        self, job: Job[T], *, synced: bool = True, changes: bool = True, alone: bool = False
    ) -> "asyncio.Future[T]":
        """Queues a job. The future is done when the job's transaction is on the disk.

        A job that is not `synced` survives the end of the process, but not a power loss. The next synced transaction
        takes it to the disk as well. A job that is `alone` runs outside a transaction.
        """
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            raise StoreUnavailable("The session store is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Task(job, changes, future, alone=alone, synced=synced))
        return future

    def execute(self, statement: str, values: Sequence[object], *, synced: bool = True) -> "asyncio.Future[int]":
        """Queues one statement. The future has the number of rows that it changed."""
        return self.write(lambda connection: connection.execute(statement, values).rowcount, synced=synced)

    async def vacuum(self) -> None:
        """Returns all free pages to the disk, with pauses in which other jobs and processes can write."""
        are_more = True
        while are_more:
            are_more = await self.free_some()
            await asyncio.sleep(VACUUM_PAUSE)
        await self.write(_truncate_log, changes=False, alone=True)

    def free_some(self) -> "asyncio.Future[bool]":
        """Returns some free pages to the disk. The future has whether there are more."""
        return self.write(_free_some, changes=False, alone=True)

    # in the thread

    def _work(self, opening: _Task) -> None:
        try:
            with self._opened() as connection:
                self._deliver([opening])
                self._serve(connection)
        except StartError as error:
            opening.error = error
            self._deliver([opening])
        except (sqlite3.Error, OSError) as error:
            opening.error = unusable(self.path, error)
            self._deliver([opening])
            self._refuse_rest(error)
        except BaseException as error:  # a bug: fail the waiting callers instead of leaving them blocked
            log.exception("the session store ends")
            self._refuse_rest(error)
            raise

    def _serve(self, connection: sqlite3.Connection) -> None:
        while True:
            batch = [self._queue.get()]
            while batch[-1] is not None and len(batch) < MAX_BATCH and not self._queue.empty():
                batch.append(self._queue.get())  # no other thread takes from it
            together: list[_Task] = []
            for task in batch:
                if task is not None and not task.alone:
                    together.append(task)
                    continue
                if together:
                    self._carry_out(connection, together)
                together = []
                if task is None:
                    return
                self._carry_out(connection, [task])
            if together:
                self._carry_out(connection, together)

    def _carry_out(self, connection: sqlite3.Connection, tasks: list[_Task]) -> None:
        """Runs all tasks in one transaction. An error that ends the transaction fails every task."""
        writes = [task.synced for task in tasks if task.writes]
        level, begin = "FULL" if self._durable and any(writes) else "NORMAL", "BEGIN IMMEDIATE" if writes else "BEGIN"
        try:
            self._check_files(connection)
            if writes and level != self._level:
                connection.execute(f"PRAGMA synchronous={level}")
                self._level = level
            if tasks[0].alone:
                tasks[0].result = tasks[0].job(connection)
            elif len(tasks) == 1:  # needs no savepoint: two statements less
                connection.execute(begin)
                connection.execute("COMMIT" if _try(connection, tasks[0]) else "ROLLBACK")
            else:
                connection.execute(begin)
                for task in tasks:
                    _do(connection, task)
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError, MemoryError) as error:
            _fail(connection, tasks, error)
        errors = [task.error for task in tasks if task.error is not None]
        if errors or self._is_failing:
            self._log_change(errors, has_stored=bool(writes) and not errors)
        self._deliver(tasks)
        self._commits += bool(writes)
        if self._commits >= CHECKPOINT_COMMITS:
            self._commits = 0
            with contextlib.suppress(sqlite3.Error):  # the log is complete; the next attempt may succeed
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _check_files(self, connection: sqlite3.Connection) -> None:
        """Raises FileNotFoundError if another file has the name of the file or its log, or no file: see the module.

        Likewise without the lock: another server may have begun. A deleted log has what was acknowledged since the last
        checkpoint. It is copied into the file, unless another process may have begun a new log. Does not look at the files
        while their folders have not changed: on Linux, looking at the times of the log makes its next flush slower.
        """
        folders = _state_of(self._folders)
        if folders is not None and folders == self._checked_folders:
            return
        for path, opened in self._opened_files:
            try:
                if os.path.samestat(os.stat(path), opened):  # noqa: PTH116  once a transaction, and a Path takes longer
                    continue
            except FileNotFoundError:
                if path.endswith(LOG):
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._checked_folders = folders

    def _log_change(self, errors: Sequence[BaseException], *, has_stored: bool) -> None:
        """Logs why nothing can be stored, once a minute at most: runs and health checks try again all the time."""
        for error in errors:
            is_known = str(error) == self._logged and time.monotonic() < self._logged_at + LOG_SECONDS
            if isinstance(error, StoreUnavailable | StorageFull) and not is_known:
                self._logged, self._logged_at, self._is_failing = str(error), time.monotonic(), True
                log.warning("%s", error)
        if has_stored and not _is_full(self.path.parent, _ROOM_TO_START):  # little may still fit into a full disk
            self._is_failing = False
            log.warning("sessions can be stored again")

    def _refuse_rest(self, error: BaseException) -> None:
        with contextlib.suppress(queue.Empty):
            while (task := self._queue.get_nowait()) is not None:
                task.error = StoreUnavailable(f"The session store cannot be used: {words_of(error)}")
                self._deliver([task])

    def _deliver(self, tasks: list[_Task]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                self._loop.call_soon_threadsafe(_settle, tasks)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        check_version()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self.path) if self.exclusive else contextlib.nullcontext():
            connection = connect(self.path)
            try:
                prepare(connection, self.path, durable=self._durable)
                self._opened_files = _files_of(self.path, LOCK if self.exclusive else "")
                self._folders = {os.path.dirname(path) for path, _ in self._opened_files}  # noqa: PTH120  as they are
                yield connection
            finally:
                connection.close()


def _state_of(folders: Iterable[str]) -> _Folders | None:
    """Differs after a file was made, deleted or renamed there. None if a folder is gone, or changed a moment ago.

    After such a moment, another change could have the same time.
    """
    try:
        found = [os.stat(folder) for folder in folders]  # noqa: PTH116  as in `_check_files`
    except OSError:
        return None
    if time.time_ns() - max(each.st_mtime_ns for each in found) < _TICK:
        return None
    return [(each.st_dev, each.st_ino, each.st_mtime_ns) for each in found]


def _files_of(path: Path, lock: str) -> list[tuple[str, os.stat_result]]:
    """The names of an open file and of those beside it that it needs. A file system without shared memory has no log."""
    files = [path, *(_beside(path, suffix) for suffix in (LOG, INDEX, lock) if suffix)]
    return [(str(each), each.stat()) for each in files if each.exists()]


def _beside(path: Path, suffix: str) -> Path:
    """A file beside the one that `path` names, or leads to: there SQLite has its log."""
    real = path.resolve()
    return real.with_name(f"{real.name}{suffix}")


def check_version() -> None:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StartError(f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or newer is needed")


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for locks, and begins no transaction by itself. Only its owner can read a new file."""
    new = not path.exists()
    _spare_lookups_of_adapters()
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, cached_statements=256)
    if new:
        path.chmod(0o600)
    return connection


def _spare_lookups_of_adapters() -> None:
    """Registers adapters that change nothing.

    For a value that is neither a number nor a str, `sqlite3` looks for an adapter. If there is none, it looks for two
    methods, and raises and catches an exception inside: 3,000 instructions for each None and each bytes. A lambda would be
    a Python call for each of them.
    """
    sqlite3.register_adapter(bytes, bytes)
    sqlite3.register_adapter(NoneType, {None: None}.__getitem__)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Locks a file against other servers.

    The system releases the lock with the last process that has its descriptor. It is the same for each link to the file.
    """
    lock = os.open(_beside(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"{path} is in use by another server; stop that one, or set another sessions.path"
            ) from None
        yield lock
    finally:
        os.close(lock)


def check_usable(path: Path) -> None:
    """Raises StartError if no server could open this file. Stores nothing, and works beside a server that uses it."""
    check_version()
    try:
        if path.exists():
            with contextlib.closing(connect(path)) as connection:
                version_of(connection, path)
                connection.execute("BEGIN IMMEDIATE")  # refused if the file or its folder is read-only
                connection.execute("ROLLBACK")
        _check_folder(next(each for each in path.parents if each.exists()))
    except (sqlite3.Error, OSError) as error:
        raise unusable(path, error) from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"{folder} is not a folder in which this process can write")
    if _is_full(folder, _ROOM_TO_START):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unusable(path: Path, error: sqlite3.Error | OSError) -> StartError:
    """The error for a file that cannot be opened: why, and what to do about it."""
    name = getattr(error, "sqlite_errorname", "")
    if _is_full(path.parent) or name == "SQLITE_FULL" or getattr(error, "errno", 0) == errno.ENOSPC:
        return StartError(f"{path} cannot be used: the disk is full; free some of it, or set another sessions.path")
    if path.is_dir():
        return StartError(f"{path} cannot be used: it is a folder; remove it, or set another sessions.path")
    advice = "; set another sessions.path" if name == "SQLITE_NOTADB" else ""
    if isinstance(error, OSError) or name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
        advice = "; let this process write to the file and its folder, or set another sessions.path"
    why = f"{path.parent} is not a folder" if isinstance(error, FileExistsError) else words_of(error)
    return StartError(f"{path} cannot be used: {why}{advice}")


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Returns the version of the schema, 0 for a new file. Raises StartError for a file that this version cannot use."""
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) != (0, 0, 0) and application != APPLICATION_ID:
        raise StartError(f"{path} is a database of another application; set another sessions.path")
    if version > len(MIGRATIONS):
        raise StartError(
            f"{path} was written by a newer version of HoloDeck; update HoloDeck, or set another sessions.path"
        )
    return int(version)


def prepare(connection: sqlite3.Connection, path: Path, *, durable: bool) -> None:
    if version_of(connection, path) == 0:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    _use_wal(connection)
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA secure_delete=FAST")  # deleted data is overwritten, if that costs no more writes
    migrate(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switches the file to WAL. Retries, because SQLite does not wait for another process that does the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the schema up to date, completely or not at all. Of two processes, one migrates and the other waits.

    Writes nothing to a file that is up to date: its sessions can be read while the disk is full.
    """
    if connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            for statement in filter(str.strip, script.split(";\n")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={number}")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise


def _fail(connection: sqlite3.Connection, tasks: list[_Task], error: BaseException) -> None:
    with contextlib.suppress(sqlite3.Error):
        connection.execute("ROLLBACK")
    failure = _failure(error)
    for task in tasks:
        task.result, task.error = None, failure


def _nothing(_connection: sqlite3.Connection) -> None:
    """The job of a task that waits for the file to be opened."""


def _free_some(connection: sqlite3.Connection) -> bool:
    """The pragma frees one page with each step. `execute` makes only one step of a statement without columns.

    It frees nothing in a file that another program has rewritten without `auto_vacuum`.
    """
    (before,) = connection.execute("PRAGMA freelist_count").fetchone()
    connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
    (after,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(0 < after < before)


def _truncate_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _do(connection: sqlite3.Connection, task: _Task) -> None:
    """Runs one of several tasks of a transaction. If it fails, its own writes are undone and the others continue."""
    if not task.writes:
        _try(connection, task)
        return
    connection.execute("SAVEPOINT task")
    if not _try(connection, task):
        connection.execute("ROLLBACK TO task")
    connection.execute("RELEASE task")


def _try(connection: sqlite3.Connection, task: _Task) -> bool:
    """Returns whether the job is done.

    Its own error goes to its caller; an error that ends the transaction is raised.
    """
    try:
        task.result = task.job(connection)
    except sqlite3.Error as error:
        if not connection.in_transaction:  # SQLite has rolled it back, with the writes of earlier tasks
            raise
        refusal = _refusal(error)
        if refusal is not None:
            log.warning("a part of the sessions cannot be read or stored: %s", error)
        task.error = refusal or _failure(error)
    except OSError:
        raise
    except Exception as error:  # a defect of one job: its caller gets it, the thread continues
        _close_cursors(error)
        task.error = error
        if not isinstance(error, HoloDeckError):
            log.exception("a job of the session store failed")
    return task.error is None


def _close_cursors(error: BaseException) -> None:
    """Drops the local variables of the frames in which a job failed.

    The error may be kept for long, and with its frames a cursor that was not read to its end. That would keep a read
    transaction open: this connection could write nothing more after another process has written, and would not see it.
    """
    traceback.clear_frames(error.__traceback__)


def _refusal(error: sqlite3.Error) -> StoreRefused | None:
    """The error for a job whose data the file refuses: a constraint, a value that is too long, or a damaged page."""
    if is_damaged(error):
        return StoreRefused(f"A part of the session file is damaged ({error}); restore a backup of it.")
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
        return StoreRefused(f"The session store refuses this: {error}")
    return None


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether a page of the file is damaged. Other pages may be intact."""
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT")


def _failure(error: BaseException) -> HoloDeckError:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        return StorageFull("The disk that holds the sessions is full.")
    why = words_of(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        why = MOVED.format(Path(error.filename).name)
    return StoreUnavailable(f"Sessions cannot be stored at the moment: {why}.")


def words_of(error: BaseException) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _is_full(folder: Path, room: int = _LEAST_ROOM) -> bool:
    """Whether the disk is full. If the index of the log does not fit, SQLite reports an I/O error instead."""
    try:
        return shutil.disk_usage(folder).free < room
    except OSError:
        return False


def _settle(tasks: list[_Task]) -> None:
    for task in tasks:
        if task.future.done():  # its waiter was cancelled
            continue
        if task.error is None:
            task.future.set_result(task.result)
        else:
            task.future.set_exception(task.error)
