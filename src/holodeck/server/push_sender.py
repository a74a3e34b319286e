"""Calls clients back when their tasks change: one queue a task, attempts with growing pauses, a signature, no way inside.

Only hosts that the operator names are called (`server.push.allow_hosts`), and only at public addresses, which are looked up
anew for every attempt (T14). What is registered lives as long as the process. The client's answer is not read.
"""

import asyncio
import hmac
import logging
import time
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from weakref import WeakKeyDictionary

from holodeck.core.encoder import bare
from holodeck.core.ids import new_ulid
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import InvalidRequest
from holodeck.files.fetch import AllowedHost, public_addresses
from holodeck.http.address import address_of
from holodeck.http.client import Client
from holodeck.http.failures import HttpError, Unsendable
from holodeck.runs.middleware import Batch, Chain
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import PushSettings
from holodeck.wires import sse
from holodeck.wires.a2a.request import PushConfig
from holodeck.wires.a2a.task import Json, TaskReader

log = logging.getLogger(__name__)

MAX_CONFIGS = 10  # of one task
MAX_TASKS = 10_000  # that have any
SECONDS = 15.0  # for one attempt
ANY = "*"
_OK = range(200, 300)
_senders: WeakKeyDictionary[AgentServer, "PushSender"] = WeakKeyDictionary()


def push_sender(server: AgentServer) -> "PushSender":
    """The one of this server."""
    return _senders.setdefault(server, PushSender(server.settings.push))


class PushSender:
    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._hosts = [AllowedHost.of(each) for each in settings.allow_hosts if each != ANY]
        self._any = ANY in settings.allow_hosts
        self._configs: dict[OwnedId, dict[str, PushConfig]] = {}
        self._followers: dict[OwnedId, asyncio.Task[None]] = {}

    @property
    def enabled(self) -> bool:
        return bool(self._settings.allow_hosts)

    def check(self, owner: Owner, task_id: str | None, config: PushConfig) -> None:
        """InvalidRequest for an address that may not be called, or one too many. `task_id` is None for a new task."""
        self._check_url(config.url)
        configs = {} if task_id is None else self.of_task(owner, task_id)
        if config.id not in configs and len(configs) >= MAX_CONFIGS:
            raise InvalidRequest(f"A task has at most {MAX_CONFIGS} addresses for notifications.", field="url")

    def add(self, owner: Owner, task_id: str, config: PushConfig) -> None:
        """Registers an address, or replaces the one of the same id. InvalidRequest as in `check`."""
        self.check(owner, task_id, config)
        self._configs.setdefault((owner, task_id), {})[config.id] = config
        while len(self._configs) > MAX_TASKS:
            self._configs.pop(next(iter(self._configs)))

    def of_task(self, owner: Owner, task_id: str) -> Mapping[str, PushConfig]:
        return self._configs.get((owner, task_id), {})

    def remove(self, owner: Owner, task_id: str, config_id: str) -> None:
        """Idempotent."""
        configs = self._configs.get((owner, task_id), {})
        configs.pop(config_id, None)
        if not configs:
            self._configs.pop((owner, task_id), None)

    def follow(self, run: Run, task_id: str, chain: Chain | None = None) -> None:
        """Sends the updates of a run from now on, if its task has an address to send them to.

        `chain` is the middleware of this reader: what it hides is not sent.
        """
        key = (run.owner, run.run_id)
        if self.of_task(run.owner, task_id) and key not in self._followers and not run.log.ended:
            follower = asyncio.create_task(self._followed(run, task_id, chain), name=f"push {run.run_id}")
            self._followers[key] = follower
            follower.add_done_callback(lambda _: self._followers.pop(key, None))

    def _check_url(self, url: str) -> None:
        try:
            address = address_of(url)
        except Unsendable as error:
            raise InvalidRequest("url is no address that can be called", field="url") from error
        if address.user is not None or not (self._any or any(each.covers(address) for each in self._hosts)):
            raise InvalidRequest("url has a host that this server does not call (server.push.allow_hosts)", field="url")

    async def _followed(self, run: Run, task_id: str, chain: Chain | None) -> None:
        """Reads the run's log as one more reader. Updates that only add to an answer are left out."""
        reader, place = TaskReader(task_id, run.session_id, run.run_id), 0
        while not run.log.ended or place < len(run.log):
            if place == len(run.log):
                await _next_event(run)
            new = run.log.since(place)
            batch: Batch = enumerate(new, place)
            events = [bare(event) for _, event in (batch if chain is None else chain(batch))]
            place += len(new)
            for update in (update for event in events for update in reader.read(event)):
                if "statusUpdate" in update or update["artifactUpdate"]["lastChunk"]:
                    await self._send(run.owner, task_id, update)

    async def _send(self, owner: Owner, task_id: str, update: Json) -> None:
        body = sse.json_bytes(update)
        sends = [self._deliver(each, body) for each in self.of_task(owner, task_id).values()]
        await asyncio.gather(*sends)

    async def _deliver(self, config: PushConfig, body: bytes) -> None:
        """At least one attempt. A client that cannot be reached loses this update, not the next."""
        message_id = new_ulid()
        for attempt in range(self._settings.attempts):
            if attempt:
                await asyncio.sleep(self._settings.wait * 2 ** (attempt - 1))
            if await self._attempt(config, body, message_id):
                return
        log.warning("a push notification was given up after %d attempts", self._settings.attempts)

    async def _attempt(self, config: PushConfig, body: bytes, message_id: str) -> bool:
        headers = _headers(config, body, message_id)
        client = Client(headers, SECONDS, resolve=public_addresses(self._settings.permit), proxied=False)
        try:
            async with asyncio.timeout(SECONDS), client.post(config.url, body) as response:
                return response.status in _OK
        except (HttpError, OSError) as error:  # TimeoutError is an OSError
            log.info("a push notification failed: %s", type(error).__name__)
            return False
        finally:
            await client.close()


async def _next_event(run: Run) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    run.log.call_at_next(wake)
    try:
        await waiter
    finally:
        run.log.do_not_call(wake)


def _headers(config: PushConfig, body: bytes, message_id: str) -> dict[str, str]:
    """The client's credentials and token, and a signature by the token (Standard Webhooks)."""
    headers = {"Content-Type": "application/a2a+json"}
    if config.scheme:
        headers["Authorization"] = f"{config.scheme} {config.credentials or ''}".rstrip()
    if config.token:
        sent = str(int(time.time()))
        signed = hmac.new(config.token.encode(), f"{message_id}.{sent}.".encode() + body, sha256).digest()
        headers |= {
            "X-A2A-Notification-Token": config.token,
            "webhook-id": message_id,
            "webhook-timestamp": sent,
            "webhook-signature": f"v1,{b64encode(signed).decode()}",
        }
    return headers
