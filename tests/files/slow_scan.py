"""A reader of files whose next file has two scanned pages, read at the pace of a test."""

import asyncio
from collections.abc import Sequence
from typing import Any

from holodeck.core.messages import Message
from holodeck.core.request import FileNote
from holodeck.files.reader import FileReader, ReportProgress


class SlowScan(FileReader):
    """Reports page 1, page 2 once `second` is set, and goes on once `over` is set: with the file, or with a refusal."""

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__()
        self.second, self.over, self.refusal = asyncio.Event(), asyncio.Event(), refusal

    async def resolve(
        self, messages: Sequence[Message], *, progress: ReportProgress | None = None, **options: Any
    ) -> tuple[tuple[Message, ...], tuple[FileNote, ...]]:
        if progress is not None:
            progress("scan.pdf", 1, 2)
            await self.second.wait()
            progress("scan.pdf", 2, 2)
            await self.over.wait()
            if self.refusal is not None:
                raise self.refusal
        return await super().resolve(messages, **options)
