"""One run at a time per session, in the order in which they came (SRV-16)."""

import asyncio

from holodeck.core.owner import OwnedId


class SessionQueue:
    """Queues of runs by session. A session without a run takes no memory."""

    def __init__(self) -> None:
        self._queues: dict[OwnedId, list[asyncio.Future[None]]] = {}  # short ones: even an empty deque is larger

    def busy(self, key: OwnedId) -> bool:
        return key in self._queues

    def waiting(self, key: OwnedId) -> int:
        """How many runs are in the queue, the running one included."""
        return len(self._queues.get(key, ()))

    def take(self, key: OwnedId) -> "QueueSlot":
        """A slot in the queue, in the order of the calls."""
        queue = self._queues.setdefault(key, [])
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not queue:
            ticket.set_result(None)
        queue.append(ticket)
        return QueueSlot(self, key, ticket)

    def release(self, key: OwnedId, ticket: "asyncio.Future[None]") -> None:
        """Idempotent."""
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
    """A slot in one queue. Entering waits for its turn; leaving lets the next one enter, also after an error."""

    __slots__ = ("_key", "_queue", "_ticket")

    def __init__(self, queue: SessionQueue, key: OwnedId, ticket: "asyncio.Future[None]") -> None:
        self._queue, self._key, self._ticket = queue, key, ticket

    @property
    def is_free(self) -> bool:
        """Whether it is this slot's turn."""
        return self._ticket.done()

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
        """Releases a slot that will not be used."""
        self._queue.release(self._key, self._ticket)
