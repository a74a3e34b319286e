"""A toolset in memory that keeps what it was asked, and fails on demand."""

import asyncio

from holodeck.core.tools import ToolResult
from holodeck.tools.port import ToolsetHealth


class RecordingToolset:
    def __init__(self, *schemas, name="recording", ready=True, start_error=None, close_error=None, never_starts=False):
        self.name = name
        self.ready = ready
        self.calls = []
        self.log = []
        self.starting = asyncio.Event()
        self._schemas = schemas
        self._start_error = start_error
        self._close_error = close_error
        self._never_starts = never_starts

    def offer(self, *schemas):
        self._schemas = schemas

    async def start(self):
        self.starting.set()
        self.log.append("start")
        if self._never_starts:
            await asyncio.Event().wait()
        if self._start_error:
            raise self._start_error

    async def close(self):
        self.log.append("close")
        if self._close_error:
            raise self._close_error

    def schemas(self):
        return self._schemas

    def health(self):
        return [ToolsetHealth(name=self.name, ready=self.ready)]

    async def call(self, name, arguments, context):
        self.calls.append((name, arguments, context))
        return ToolResult(content=f"{self.name}.{name}")
