"""A client that an A2A server calls when a task changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class Webhook:
    """A client that wants to be called. So many calls fail first."""

    def __init__(self, failures: int = 1) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.failures = failures

    async def take(self, request: web.Request) -> web.Response:
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        self.calls.append(({key.lower(): value for key, value in request.headers.items()}, await request.read()))
        return web.Response()


@asynccontextmanager
async def listening(hook: Webhook) -> AsyncIterator[int]:
    """The port at which it is called."""
    app = web.Application()
    app.router.add_post("/hook", hook.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
