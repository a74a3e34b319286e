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
from holodeck.runs.log import ReplayGone
from holodeck.runs.middleware import Batch, Chain
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import PushSettings
from holodeck.wires import sse
from holodeck.wires.a2a.request import PushConfig
from holodeck.wires.a2a.task import TERMINAL, Json, TaskReader

log = logging.getLogger(__name__)

MAX_CONFIGS = 10  # of one task
MAX_TASKS, MAX_OWNER_TASKS = 10_000, 1_000  # that have any: of all owners, of one
MAX_FOLLOWERS, MAX_OWNER_FOLLOWERS = 2_000, 500  # runs whose updates are sent at a time
SECONDS = 15.0  # for one attempt
AFTER_END_SECONDS = 60.0  # for the updates that are left when a run has ended; then only the last status is sent
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
        self._configs: dict[Owner, dict[str, dict[str, PushConfig]]] = {}  # owner → task → id; the oldest task first
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
        """Registers an address, or replaces the one of the same id. InvalidRequest as in `check`.

        An owner with too many tasks loses its own oldest. If all owners together have too many, the one with the most does.
        """
        self.check(owner, task_id, config)
        tasks = self._configs.setdefault(owner, {})
        tasks[task_id] = {**self.of_task(owner, task_id), config.id: config}
        if len(tasks) > MAX_OWNER_TASKS:
            self._forget(owner, next(iter(tasks)))
        if sum(map(len, self._configs.values())) > MAX_TASKS:
            most = max(self._configs, key=lambda each: len(self._configs[each]))
            self._forget(most, next(iter(self._configs[most])))

    def of_task(self, owner: Owner, task_id: str) -> Mapping[str, PushConfig]:
        return self._configs.get(owner, {}).get(task_id, {})

    def remove(self, owner: Owner, task_id: str, config_id: str) -> None:
        """Idempotent."""
        left = {id_: config for id_, config in self.of_task(owner, task_id).items() if id_ != config_id}
        if left:
            self._configs[owner][task_id] = left
        else:
            self._forget(owner, task_id)

    def _forget(self, owner: Owner, task_id: str) -> None:
        tasks = self._configs.get(owner, {})
        tasks.pop(task_id, None)
        if not tasks:
            self._configs.pop(owner, None)

    def follow(self, run: Run, task_id: str, chain: Chain | None = None) -> None:
        """Sends the updates of a run from now on, if its task has an address to send them to.

        `chain` is the middleware of this reader: what it hides is not sent.
        """
        key = (run.owner, run.run_id)
        if not self.of_task(run.owner, task_id) or key in self._followers or run.log.ended:
            return
        if len(self._followers) >= MAX_FOLLOWERS or self._followers_of(run.owner) >= MAX_OWNER_FOLLOWERS:
            log.warning("too many runs have push notifications: those of run %s are not sent", run.run_id)
            return
        follower = asyncio.create_task(self._followed(run, task_id, chain), name=f"push {run.run_id}")
        self._followers[key] = follower
        follower.add_done_callback(lambda _: self._followers.pop(key, None))

    def _followers_of(self, owner: Owner) -> int:
        return sum(each == owner for each, _ in self._followers)

    def _check_url(self, url: str) -> None:
        try:
            address = address_of(url)
        except Unsendable as error:
            raise InvalidRequest("url is no address that can be called", field="url") from error
        if address.user is not None or not (self._any or any(each.covers(address) for each in self._hosts)):
            raise InvalidRequest("url has a host that this server does not call (server.push.allow_hosts)", field="url")

    async def _followed(self, run: Run, task_id: str, chain: Chain | None) -> None:
        """Sends the updates of a run in their order; at least the last status, if a client is too slow for all of them."""
        updates = _Updates(run, task_id, chain)
        try:
            async with asyncio.timeout(None) as limit:
                while not updates.at_end:
                    for update in await updates.more():
                        if run.log.ended and limit.when() is None:
                            limit.reschedule(asyncio.get_running_loop().time() + AFTER_END_SECONDS)
                        await self._send(run.owner, task_id, update)
        except (ReplayGone, TimeoutError):
            log.warning(
                "a client is too slow for the push notifications of run %s: it gets the last status", run.run_id
            )
            while not updates.at_end:
                updates.skip_what_is_gone()
                await updates.more()
            await self._send(run.owner, task_id, updates.last_status)
        if updates.last_status["statusUpdate"]["status"]["state"] in TERMINAL:
            self._forget(run.owner, task_id)

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


class _Updates:
    """The updates of a run that clients are sent, from its log. Those that only add to an answer are left out."""

    def __init__(self, run: Run, task_id: str, chain: Chain | None) -> None:
        self._run, self._task_id, self._chain = run, task_id, chain
        self._reader, self._place = TaskReader(task_id, run.session_id, run.run_id), 0

    @property
    def at_end(self) -> bool:
        return self._run.log.ended and self._place == len(self._run.log)

    @property
    def last_status(self) -> Json:
        ids = {"taskId": self._task_id, "contextId": self._run.session_id}
        return {"statusUpdate": {**ids, "status": self._reader.status}}

    async def more(self) -> list[Json]:
        """Those of the events that came since; waits for the next event if there is none. ReplayGone."""
        log = self._run.log
        if self._place == len(log) and not log.ended:
            await _next_event(self._run)
        new = log.since(self._place)
        batch: Batch = enumerate(new, self._place)
        events = [bare(event) for _, event in (batch if self._chain is None else self._chain(batch))]
        self._place += len(new)
        updates = (update for event in events for update in self._reader.read(event))
        return [each for each in updates if "statusUpdate" in each or each["artifactUpdate"]["lastChunk"]]

    def skip_what_is_gone(self) -> None:
        """Goes on at the first event that the log still has."""
        log = self._run.log
        self._place = max(self._place, len(log) - len(log.kept))


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
