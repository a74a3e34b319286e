"""Push notifications: calls clients back when their tasks change.

Each task has one queue. The sender retries with growing pauses and signs what it sends.

The sender calls only hosts that the operator names (`server.push.allow_hosts`), and only at public addresses, which it
looks up again for every attempt (T14). Registrations are stored with the task's owner. The process that starts a run,
or takes it over after a crash, sends its updates. If a client registers an address later at another process, that
process calls it. The sender does not read the client's answer.
"""

import asyncio
import hmac
import logging
import time
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import msgspec

from holodeck.core.encoder import bare
from holodeck.core.ids import new_ulid
from holodeck.core.json_values import JsonObject
from holodeck.core.owner import Owner
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.files.fetch import AllowedHost, public_addresses
from holodeck.http.address import address_of
from holodeck.http.client import Client
from holodeck.http.failures import HttpError, Unsendable
from holodeck.runs.log import ReplayGone, next_event
from holodeck.runs.middleware import EventMiddleware
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import PushSettings
from holodeck.sessions.values import KeptValue, ValueStore
from holodeck.wires import sse
from holodeck.wires.a2a import v03
from holodeck.wires.a2a.card import OLD_VERSION
from holodeck.wires.a2a.request import PushConfig
from holodeck.wires.a2a.task import TERMINAL, TaskReader, task_json

log = logging.getLogger(__name__)

MAX_CONFIGS = 10  # addresses of one task
MAX_OWNER_CONFIGS = 1_000
KEPT_SECONDS = 30 * 24 * 3600.0  # seconds: a task that waits longer loses its addresses
KIND = "push"
MAX_FOLLOWERS, MAX_OWNER_FOLLOWERS = 2_000, 500  # runs whose updates are sent at the same time
SECONDS = 15.0  # seconds for one attempt
FINISH_SECONDS = 2.0  # seconds for the remaining updates when the server stops
AFTER_END_SECONDS = 60.0  # seconds for the remaining updates when a run has ended; then only the last status is sent
ANY = "*"
_OK = range(200, 300)
_decode = msgspec.json.Decoder(PushConfig).decode


def prepare_push(server: AgentServer) -> None:
    """Gives the server a sender, before it continues interrupted runs."""
    server.push_sender = sender = PushSender(
        server.settings.block.push.allow_hosts, server.settings.push, server.store.values
    )
    if sender.enabled:
        server.interrupted_runs.on_taken_up.append(lambda run: sender.resume(run, server.middleware()))
        server.at_drain.append(sender.finish)


class PushSender:
    def __init__(self, allow_hosts: Sequence[str], settings: PushSettings, values: ValueStore) -> None:
        self._settings, self._values = settings, values
        self._hosts = [AllowedHost.of(each) for each in allow_hosts if each != ANY]
        self._any = ANY in allow_hosts
        self._followers: dict[Run, _Follower] = {}
        self._resuming: set[asyncio.Task[None]] = set()

    @property
    def enabled(self) -> bool:
        return self._any or bool(self._hosts)

    async def check(self, owner: Owner, task_id: str | None, config: PushConfig) -> None:
        """Raises InvalidRequest for a forbidden address, or one too many. `task_id` is None for a new task."""
        self._check_url(config.url)
        configs = {} if task_id is None else await self.of_task(owner, task_id)
        if config.id not in configs and len(configs) >= MAX_CONFIGS:
            raise InvalidRequest(f"A task has at most {MAX_CONFIGS} addresses for notifications.", field="url")

    async def add(self, owner: Owner, task_id: str, config: PushConfig, session_id: str | None = None) -> None:
        """Registers an address, or replaces the one of the same id. InvalidRequest as in `check`.

        An owner with too many addresses loses the oldest ones. They are deleted with the task's session.
        """
        await self.check(owner, task_id, config)
        body = msgspec.json.encode(config)
        value = KeptValue(kind=KIND, topic=task_id, name=config.id, body=body, session_id=session_id)
        await self._values.put(value, owner=owner, seconds=KEPT_SECONDS, at_most=MAX_OWNER_CONFIGS)

    async def of_task(self, owner: Owner, task_id: str) -> Mapping[str, PushConfig]:
        """Returns the addresses that may be called: the operator may have removed a host from the list since."""
        found = await self._values.of_topic(KIND, task_id, owner=owner)
        configs = {each.name: _decode(each.body) for each in found}
        return {id_: config for id_, config in configs.items() if self._may_call(config.url)}

    async def remove(self, owner: Owner, task_id: str, config_id: str) -> None:
        """Idempotent."""
        await self._values.remove(KIND, task_id, config_id, owner=owner)

    async def follow(self, run: Run, task_id: str, middleware: EventMiddleware, *, only: str | None = None) -> None:
        """Sends the updates of a run to the addresses of its task, or to `only` this one.

        What `middleware` hides is not sent.
        """
        known = await self.of_task(run.owner, task_id)
        self._start(run, task_id, middleware, [each for each in known if only in (None, each)])

    def resume(self, run: Run, middleware: EventMiddleware) -> None:
        """Sends the remaining updates of a run that this process has taken over, at least how it ended."""
        task = asyncio.create_task(self._resumed(run, middleware), name=f"push {run.run_id} again")
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    async def finish(self) -> None:
        """Gives the updates of ended runs a moment, then gives up: the server stops."""
        tasks = {*self._resuming, *(each.task for each in self._followers.values() if each.task is not None)}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()

    async def _resumed(self, run: Run, middleware: EventMiddleware) -> None:
        task_id = run.root
        known = await self._known(run.owner, task_id)
        served = {each for other, it in self._followers.items() if other.run_id == run.run_id for each in it.addresses}
        self._start(run, task_id, middleware, [each for each in known if each not in served])

    def _start(self, run: Run, task_id: str, middleware: EventMiddleware, addresses: Sequence[str]) -> None:
        if not addresses:
            return
        if run in self._followers:
            self._followers[run].addresses.update(addresses)
            return
        of_owner = sum(other.owner == run.owner for other in self._followers)
        if len(self._followers) >= MAX_FOLLOWERS or of_owner >= MAX_OWNER_FOLLOWERS:
            log.warning("too many runs have push notifications: those of run %s are not sent", run.run_id)
            return
        follower = self._followers[run] = _Follower(set(addresses))
        follower.task = asyncio.create_task(
            self._followed(run, task_id, middleware, follower), name=f"push {run.run_id}"
        )
        follower.task.add_done_callback(lambda _: self._followers.pop(run, None))

    def _may_call(self, url: str) -> bool:
        try:
            self._check_url(url)
        except InvalidRequest:
            return False
        return True

    def _check_url(self, url: str) -> None:
        try:
            address = address_of(url)
        except Unsendable as error:
            raise InvalidRequest("url is not an address that can be called", field="url") from error
        if address.user is not None or not (self._any or any(each.covers(address) for each in self._hosts)):
            raise InvalidRequest("url has a host that this server does not call (server.push.allow_hosts)", field="url")

    async def _followed(self, run: Run, task_id: str, middleware: EventMiddleware, follower: "_Follower") -> None:
        """Sends the updates of a run in order. A client that is too slow for all of them gets the last status."""
        try:
            await self._send_all(_Updates(run, task_id, middleware), run, task_id, follower)
        except HoloDeckError as error:  # the last update is sent, but the store cannot be changed
            log.warning("the addresses for push notifications of run %s are kept: %s", run.run_id, error.message)

    async def _send_all(self, updates: "_Updates", run: Run, task_id: str, follower: "_Follower") -> None:
        try:
            async with asyncio.timeout(None) as limit:
                while not updates.at_end:
                    for update in await updates.more():
                        if run.log.ended and limit.when() is None:
                            limit.reschedule(asyncio.get_running_loop().time() + AFTER_END_SECONDS)
                        await self._send(run.owner, task_id, follower.addresses, update)
        except (ReplayGone, TimeoutError):
            log.warning(
                "a client is too slow for the push notifications of run %s: it gets the last status", run.run_id
            )
            while not updates.at_end:
                updates.skip_what_is_gone()
                await updates.more()
            await self._send(run.owner, task_id, follower.addresses, updates.last_status)
        if updates.last_status.task["status"]["state"] in TERMINAL:
            for address in follower.addresses:
                await self.remove(run.owner, task_id, address)

    async def _send(self, owner: Owner, task_id: str, addresses: Collection[str], update: "_Update") -> None:
        """Sends to those addresses that are still registered. Any process may have removed one."""
        known = [config for id_, config in (await self._known(owner, task_id)).items() if id_ in addresses]
        bodies = [(config, update.body_for(config)) for config in known]
        await asyncio.gather(*(self._deliver(config, body) for config, body in bodies if body is not None))

    async def _known(self, owner: Owner, task_id: str) -> Mapping[str, PushConfig]:
        """Returns the addresses of a task. While the store cannot be read, updates are lost, but not the next ones."""
        for pause in self._pauses():
            await asyncio.sleep(pause)
            try:
                return await self.of_task(owner, task_id)
            except HoloDeckError as error:
                log.info("the addresses for push notifications cannot be read: %s", error.message)
        log.warning("a push notification was not sent: the store could not be read %d times", self._settings.attempts)
        return {}

    async def _deliver(self, config: PushConfig, body: bytes) -> None:
        """Makes at least one attempt. A client that cannot be reached loses this update, not the next."""
        message_id = new_ulid()
        for pause in self._pauses():
            await asyncio.sleep(pause)
            if await self._attempt(config, body, message_id):
                return
        log.warning("a push notification was given up after %d attempts", self._settings.attempts)

    def _pauses(self) -> list[float]:
        """The seconds before each attempt."""
        return [0.0, *(self._settings.wait * 2**n for n in range(self._settings.attempts - 1))]

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


@dataclass
class _Follower:
    """Sends the updates of one run. `addresses` are the ids of the configurations that it serves."""

    addresses: set[str]
    task: asyncio.Task[None] | None = None


class _Update(NamedTuple):
    """An update in the form of 1.0, and the task at that time: clients of 0.3 get the task when its status changes."""

    update: JsonObject
    task: JsonObject

    def body_for(self, config: PushConfig) -> bytes | None:
        if config.version != OLD_VERSION:
            return sse.json_bytes(self.update)
        return sse.json_bytes(v03.task(self.task)) if "statusUpdate" in self.update else None


class _Updates:
    """The updates in a run's log that clients are sent. Leaves out those that only add to an answer."""

    def __init__(self, run: Run, task_id: str, middleware: EventMiddleware) -> None:
        self._run, self._task_id, self._middleware = run, task_id, middleware
        self._reader, self._position = TaskReader(task_id, run.session_id, run.run_id), 0

    @property
    def at_end(self) -> bool:
        return self._run.log.ended and self._position == len(self._run.log)

    @property
    def last_status(self) -> _Update:
        ids = {"taskId": self._task_id, "contextId": self._run.session_id}
        return _Update({"statusUpdate": {**ids, "status": self._reader.status}}, self._task())

    def _task(self) -> JsonObject:
        return task_json(
            task_id=self._task_id,
            context_id=self._run.session_id,
            status=self._reader.status,
            artifacts=list(self._reader.artifacts.values()),
            history=(),
        )

    async def more(self) -> list[_Update]:
        """Returns the updates since the last call. Waits for the next event if there are none. ReplayGone."""
        log = self._run.log
        if self._position == len(log) and not log.ended:
            await next_event(log)
        new = log.since(self._position)
        events = [bare(event) for _, event in self._middleware(enumerate(new, self._position))]
        self._position += len(new)
        updates = (update for event in events for update in self._reader.read(event))
        return [
            _Update(each, self._task())
            for each in updates
            if "statusUpdate" in each or each["artifactUpdate"]["lastChunk"]
        ]

    def skip_what_is_gone(self) -> None:
        """Continues at the first event that the log still has."""
        log = self._run.log
        self._position = max(self._position, len(log) - len(log.kept))


def _headers(config: PushConfig, body: bytes, message_id: str) -> dict[str, str]:
    """The client's credentials and token, and a signature by the token (Standard Webhooks)."""
    headers = {"Content-Type": "application/json" if config.version == OLD_VERSION else "application/a2a+json"}
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
