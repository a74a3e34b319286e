"""Workers of one server on one SQLite file, each with a port of its own: a test asks the one that it means.

The test is their parent: it has bound their sockets, holds their lifeline, and says which have ended.
"""

import asyncio
import os
import signal
import socket
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from holodeck.config.serving import WORKER_VARIABLE, WorkerSeat
from holodeck.core.ids import new_ulid
from holodeck.stores.sqlite_shared_runs import WorkersFile
from tests.cluster.replicas import PATIENCE, TOOLS, Pace, Server
from tests.models.endpoint import ModelEndpoint
from tests.server.forked import Forked
from tests.warm import MORE

AGENT = """\
name: tester
model: {{provider: openai_compatible, name: m, api_key: none, endpoint: '{endpoint}'}}
tools: [{{name: act, type: function, file: tools.py, approval: {approval}}}]
sessions: {{path: sessions.db}}
server: {{runs: {{detach_grace: 60}}}}
"""


class Worker(Server):
    """One of the workers."""

    def __init__(self, folder: Path, number: int, meeting: str, lifeline: int, file: WorkersFile) -> None:
        super().__init__(folder)
        self._file = file
        self._number, self._meeting, self._lifeline = number, meeting, lifeline
        self.replica = ""

    async def start(self) -> None:
        self.replica = new_ulid()
        seat = WorkerSeat(
            number=self._number,
            replica=self.replica,
            listener=MORE,
            lifeline=MORE + 1,
            folder=self._meeting,
            secret="shared by all",
        )
        environment = {**os.environ, WORKER_VARIABLE: msgspec.json.encode(seat).decode(), "HOLODECK_BANNER": "1"}
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            self._process = await Forked.start(
                *("serve", "--protocol", "all"),
                folder=self.folder,
                environment=environment,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=PIPE,
                more=[listener.fileno(), self._lifeline],
            )
        async with asyncio.timeout(PATIENCE):
            await self.is_announced()

    async def end(self, number: int = signal.SIGKILL) -> None:
        await super().end(number)
        self._file.ended(self.replica)


@asynccontextmanager
async def siblings(folder: Path, respond: Any = None, *, approval: str = "never") -> AsyncIterator[list[Worker]]:
    """Two workers of one agent, and what their parent has of their file."""
    (folder / "tools.py").write_text(TOOLS)
    lifeline, own_end = os.pipe()
    async with ModelEndpoint(respond or Pace()) as endpoint:
        (folder / "agent.yaml").write_text(AGENT.format(endpoint=endpoint.url, approval=approval))
        with WorkersFile.opened(folder / "sessions.db") as file, tempfile.TemporaryDirectory() as meeting:
            workers = [Worker(folder, number, meeting, lifeline, file) for number in range(2)]
            try:
                await asyncio.gather(*(worker.start() for worker in workers))
                yield workers
            finally:
                os.close(own_end)  # the end of their parent
                for worker in workers:
                    if worker.runs:
                        await asyncio.wait_for(worker.process.wait(), PATIENCE)
                        await worker.process.communicate()
                os.close(lifeline)
