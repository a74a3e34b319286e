"""Runs of the chat-stream wire: each has to end in time, and most of them leave nothing behind (ORC-03, ORC-07)."""

import asyncio
from functools import partial

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.owner import Owner
from holodeck.errors import RunTimeout
from holodeck.runs.idempotency import RunKey
from holodeck.runs.runs import Run
from holodeck.server.agent_server import AgentServer
from holodeck.wires import sse
from holodeck.wires.chat_stream.request import ChatStreamRequest, run_request


class ChatStreams:
    def __init__(self, server: AgentServer) -> None:
        self._server = server
        self._watched: set[asyncio.Task[None]] = set()

    async def start(self, chat: ChatStreamRequest, owner: Owner, key: RunKey | None = None) -> Run:
        """Under a `key`, the same request joins the run that it started before."""
        self._server.enter()
        begin = partial(self._begin, chat, owner)
        fingerprint = b"" if key is None else sse.json_bytes(chat)
        return await self._server.start_run(begin, conversation=chat.conversation_id, key=key, fingerprint=fingerprint)

    async def _begin(self, chat: ChatStreamRequest, owner: Owner) -> Run:
        """A conversation is gone with its run, unless the client named it and the agent file names a store."""
        self._server.admit(owner)
        kept = chat.conversation_id if self._server.settings.remember_conversations else None
        request = msgspec.structs.replace(run_request(chat, session_id=kept or new_ulid()), owner=owner)
        run = await self._server.runs.start(request)
        watching = asyncio.create_task(self._watch(run, forget=kept is None), name=f"watch {run.run_id}")
        self._watched.add(watching)
        watching.add_done_callback(self._watched.discard)
        return run

    async def _watch(self, run: Run, *, forget: bool) -> None:
        seconds = self._server.settings.chat_stream_timeout
        timer = asyncio.get_running_loop().call_later(
            seconds,
            self._server.runs.stop,
            run,
            RunTimeout(f"The answer took longer than {seconds:g} s.", "run_timeout"),
        )
        await run.done()
        timer.cancel()
        if forget:
            await self._server.store.delete(run.session_id, owner=run.owner)
