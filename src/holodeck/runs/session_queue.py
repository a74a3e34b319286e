"""One run at a time per session, in the order in which they came (SRV-16)."""

import asyncio


class SessionQueue:
    """Queues by key. A key that nobody waits for takes no memory."""

    def __init__(self) -> None:
        self._queues: dict[str, list[asyncio.Future[None]]] = {}  # short ones: even an empty deque is larger

    def busy(self, key: str) -> bool:
        return key in self._queues

    def waiting(self, key: str) -> int:
        """How many are in the queue, the one whose turn it is included."""
        return len(self._queues.get(key, ()))

    def take(self, key: str) -> "QueueSlot":
        """A place in the queue, taken at once and in the order of the calls."""
        queue = self._queues.setdefault(key, [])
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not queue:
            ticket.set_result(None)
        queue.append(ticket)
        return QueueSlot(self, key, ticket)

    def release(self, key: str, ticket: "asyncio.Future[None]") -> None:
        """Done twice, it is done once."""
        queue = self._queues.get(key)
        if queue is None or ticket not in queue:
            return
        was_first = queue[0] is ticket
        queue.remove(ticket)
        if not queue:
            del self._queues[key]
        elif was_first and not queue[0].done():
            queue[0].set_result(None)


class QueueSlot:
    """A place in one queue. Entering waits for it; leaving lets the next one go, whatever happened."""

    __slots__ = ("_key", "_queue", "_ticket")

    def __init__(self, turns: SessionQueue, key: str, ticket: "asyncio.Future[None]") -> None:
        self._queue, self._key, self._ticket = turns, key, ticket

    async def __aenter__(self) -> None:
        try:
            if not self._ticket.done():
                await asyncio.shield(self._ticket)  # the ticket itself must survive a cancelled wait
        except BaseException:
            self.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """For a place that nobody will enter."""
        self._queue.release(self._key, self._ticket)
