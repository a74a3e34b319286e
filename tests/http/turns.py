"""Whether others have a turn while an answer pours in."""

import asyncio
from typing import Self


class Turns:
    """`async with Turns() as turns: await response.read_into(turns.take)`; `most` is what came between two turns."""

    def __init__(self) -> None:
        self.most = 0
        self.came = bytearray()
        self._turns = self._before = self._at_once = 0

    async def __aenter__(self) -> Self:
        self._beside = asyncio.create_task(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beside.cancel()

    def take(self, data: bytes) -> bool:
        self._at_once = self._at_once + len(data) if self._turns == self._before else len(data)
        self.most, self._before = max(self.most, self._at_once), self._turns
        self.came.extend(data)
        return False

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turns += 1
