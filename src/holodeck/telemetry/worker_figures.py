"""The metrics of all workers of one server on one page: the worker that is asked collects them from the others.

Each worker has a socket and a file in the folder of their parent. When a worker is asked, it writes its metrics to the
file. So everything that was ever on a page is in a file: the next worker with the same number continues counting from
there, and a sum never falls because a worker died. What a worker counted after the last request is lost with it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from holodeck.telemetry.exposition import Series, combined

log = logging.getLogger(__name__)

ANSWER_SECONDS = 1.0  # seconds for another worker to write its metrics; after that, its previous ones are used
_decode = msgspec.json.Decoder(list[Series]).decode


def socket_of(folder: Path, number: int) -> Path:
    """The socket that a worker has from the end of its start until it ends."""
    return folder / f"{number}.sock"


class WorkerFigures:
    def __init__(self, folder: Path, number: int, own: Callable[[], Awaitable[Sequence[Series]]]) -> None:
        """`own` returns the metrics of this process alone."""
        self._folder, self._name, self._own = folder, str(number), own
        self._socket = socket_of(folder, number)
        self._inherited: list[Series] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._inherited = self._grown(self._name)
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, self._socket)

    async def close(self) -> None:
        """Saves the counts for the next worker with the same number."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):  # the parent has ended
                self._socket.unlink(missing_ok=True)
                await self._write()

    async def all(self) -> list[Series]:
        """Returns the metrics of all workers, combined by name. A dead worker contributes only its counters."""
        others = sorted(path.stem for path in self._folder.glob("*.figures") if path.stem != self._name)
        others += [
            path.stem for path in self._folder.glob("*.sock") if path.stem not in others and path.stem != self._name
        ]
        own, lives = await asyncio.gather(self._write(), asyncio.gather(*map(self._asked, others)))
        read = [self._read(name) if alive else self._grown(name) for name, alive in zip(others, lives, strict=True)]
        return combined([own, *read])

    async def _write(self) -> list[Series]:
        figures = combined([await self._own(), self._inherited])
        beside = self._folder / f"{self._name}.new"
        try:
            beside.write_bytes(msgspec.json.encode(figures))
            beside.replace(self._folder / f"{self._name}.figures")
        except OSError as error:  # a full disk, or a deleted folder: this worker's own page still has them
            log.warning("the metrics of this worker cannot be written: %s", os.strerror(error.errno or 0))
        return figures

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._write()
        finally:
            writer.close()

    async def _asked(self, name: str) -> bool:
        """Returns whether the worker is alive. Then it has written its metrics, or is busy."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._folder / f"{name}.sock")
                try:
                    await reader.read()
                finally:
                    writer.close()
        except TimeoutError:
            return True
        except OSError:
            return False
        return True

    def _read(self, name: str) -> list[Series]:
        try:
            return _decode((self._folder / f"{name}.figures").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return []

    def _grown(self, name: str) -> list[Series]:
        return [series for series in self._read(name) if series.only_grows]
