"""Cancellations that a library, or a tool, loses.

Before Python 3.12, `asyncio.wait_for` returns the result if a cancellation comes when its work is done. redis-py sends
every command with it, and psycopg's pool waits with it for a connection.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def noticing_cancellation(work: Awaitable[T]) -> T:
    """Awaits the work. Raises CancelledError if the task was cancelled meanwhile and the work has not noticed it.

    Otherwise the task would continue, and those who wait for its end would wait for ever.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await work
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
