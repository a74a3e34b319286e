"""The two C programs of the harness: the fake model endpoint and the load client.

They are compiled when first needed. Without a C compiler the endpoint has a slower version in Python, which is enough to
measure a client; the load client has none.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import cores, end, environment
from benchmarks.report import CannotMeasureError

HERE = Path(__file__).parent
SOURCES = HERE / "native"
PROGRAMS = HERE / "bin"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def program(name: str) -> Path:
    """The compiled program; compiled again when a source is newer."""
    built = PROGRAMS / name
    newest = max(source.stat().st_mtime for source in SOURCES.iterdir())
    if built.exists() and built.stat().st_mtime >= newest:
        return built
    cc = compiler()
    if cc is None:
        raise CannotMeasureError(f"{name} is written in C and there is no C compiler (cc, gcc, clang)")
    PROGRAMS.mkdir(exist_ok=True)
    command = [cc, "-O2", "-Wall", "-Wextra", "-o", str(built), str(SOURCES / f"{name}.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMeasureError(f"{name}.c does not compile: {done.stderr.strip()}")
    return built


@contextlib.contextmanager
def fake_model(*, needs_c: bool = True) -> Iterator[int]:
    """The port of a fake model endpoint in a process of its own."""
    if needs_c or compiler():
        command = [str(program("fake_llm"))]
    else:
        print("no C compiler: a Python endpoint stands in, which may be slower than what is measured", file=sys.stderr)
        command = [sys.executable, str(HERE / "fake_llm.py")]
    with _endpoint(command) as port:
        yield port


def fake_apis() -> contextlib.AbstractContextManager[int]:
    """The port of an endpoint that speaks several APIs, in a process of its own."""
    return _endpoint([sys.executable, str(HERE / "fake_apis.py")])


def relay(model_port: int, certificate: Path | None = None) -> contextlib.AbstractContextManager[int]:
    """The port of a relay in front of a fake model, with TLS if it gets a certificate."""
    command = [sys.executable, str(HERE / "servers" / "relay.py"), str(model_port)]
    return _endpoint([*command, str(certificate)] if certificate else command)


@contextlib.contextmanager
def _endpoint(command: list[str]) -> Iterator[int]:
    """Runs an endpoint that prints its port."""
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, start_new_session=True)
    try:
        os.sched_setaffinity(process.pid, cores()[0])
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise CannotMeasureError("the fake model endpoint did not start")
        yield int(line)
    finally:
        end(process)
        if process.stdout:
            process.stdout.close()
