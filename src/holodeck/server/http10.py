"""Answers to HTTP/1.0, which many a proxy speaks towards the server behind it.

It knows neither chunks nor `100 Continue` (RFC 9112, 6.1; RFC 9110, 10.1.1), and uvicorn sends both. An answer whose
length is not known beforehand ends with its connection here; whether all of it came, a stream's last event tells.
"""

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class UnframedCycle(RequestResponseCycle):
    """uvicorn makes its own kind of them; `take_over` makes one of these of it."""

    _open_ended = False

    @classmethod
    def take_over(cls, cycle: RequestResponseCycle) -> None:
        cycle.__class__ = cls  # it is known to its task already: another in its place would not be asked
        cycle.keep_alive = cycle.waiting_for_100_continue = False

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            self._open_ended = all(name.lower() != b"content-length" for name, _ in message["headers"])
            self.chunked_encoding = False if self._open_ended else None
        elif message["type"] == "http.response.body" and self._open_ended:
            self.expected_content_length = len(message.get("body", b""))  # what is expected is what comes
        await super().send(message)
