"""Removal of old rows in batches, so that no run waits long for the store."""

from collections.abc import Awaitable, Callable

BATCH = 500  # rows in one transaction
BATCH_BYTES = 4_000_000  # bytes of sessions per transaction, not counting the last session


async def in_batches(remove: Callable[[], Awaitable[tuple[int, bool]]]) -> int:
    """Calls `remove` until nothing is left to remove. Returns the total number of removed rows.

    `remove` returns how many rows it has removed, at most `BATCH` of a kind, and whether there may be more.
    """
    removed, is_more = 0, True
    while is_more:
        batch, is_more = await remove()
        removed += batch
    return removed
