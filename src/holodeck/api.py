"""Agents in Python programs: load or make one, ask it, stream its events, answer its questions.

`Agent` combines the same parts as the server: the definition of an agent, a session store, and the runs on both. So a
conversation in a program behaves as it does over HTTP: one run at a time per session, one log per run, the same errors.
"""

import asyncio
import atexit
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.settings import AgentLoopConfig
from holodeck.agent.structured_output import OutputType
from holodeck.config.build import build_agent, build_files, build_run_settings
from holodeck.config.build_stores import build_memory
from holodeck.config.load import LoadedConfig, config_of, load_config, with_model
from holodeck.core.events import Event, Interrupt, Outcome, RunFailed, RunFinished
from holodeck.core.ids import MAX_ID_LENGTH, is_valid_id, new_ulid
from holodeck.core.messages import TextPart, ToolExecution, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.core.request import Resume, RunRequest
from holodeck.core.tools import Approval
from holodeck.core.usage import TokenUsage
from holodeck.core.zones import is_zone
from holodeck.errors import Cancelled, ConfigError, InvalidRequest, by_code
from holodeck.files.upload import Upload
from holodeck.models.port import Model
from holodeck.runs.log import follow
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs
from holodeck.sessions.port import SessionStore
from holodeck.tools.binding import Tool, sources_of
from holodeck.tools.catalogue import Source
from holodeck.tools.rules import ToolRules

Approve: TypeAlias = Callable[[Interrupt], bool | Awaitable[bool]]
MAX_APPROVALS = 50  # approvals that one `ask` answers before it gives up: a model may repeat the same call forever


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. `str(reply)` is its text."""

    text: str
    session: str
    run_id: str
    outcome: Outcome = Outcome.COMPLETED
    interrupts: tuple[Interrupt, ...] = ()
    tools: tuple[ToolExecution, ...] = ()
    usage: TokenUsage | None = None
    model: str | None = None  # the model that answered: the agent's, or a fallback
    warning: str | None = None
    output: Any = None  # the parsed value, if the agent has a response format

    @property
    def waits(self) -> bool:
        """Whether a person must approve something before the run can continue."""
        return bool(self.interrupts)

    def __str__(self) -> str:
        return self.text


class Agent:
    """An agent, ready to be asked. Use it as `async with`, or call `close` when you are done.

    Args:
        model: `provider/name` such as "gemini/gemini-2.5-flash", "demo", or a Model of your own.
        instructions: The system prompt; {user_id}, {now} and {timezone} are filled in.
        tools: Plain functions (sync or async; the schema comes from the signature), ToolBindings, or Toolsets.
        approve: Names of tools that need a person's approval; "*" means all.
        output_type: What `reply.output` must be: a pydantic model, dataclass, TypedDict, msgspec struct, any type that
            pydantic knows, or a JSON Schema.
        settings: Further keys of agent.yaml, as a dictionary.
    """

    def __init__(
        self,
        model: str | Model,
        instructions: str = "",
        tools: Iterable[Tool] = (),
        *,
        name: str = "agent",
        approve: Iterable[str] = (),
        loop: AgentLoopConfig | None = None,
        store: SessionStore | None = None,
        output_type: Any = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if model is None:  # such as an environment variable that is not set: the demo model must be asked for
            raise ConfigError('model is None; write provider/name, "demo", or pass a Model')
        described: dict[str, Any] = {"name": name, "model": {"provider": "demo"}, **(settings or {})}
        if instructions:
            described["instructions"] = {"inline": instructions}
        if loop is not None:
            described["loop"] = loop.model_dump(mode="json")
        output = None if output_type is None else OutputType.of(output_type)
        self._join(config_of(described), model, tools, approve, store, output=output)

    @classmethod
    def of_config(
        cls,
        config: LoadedConfig,
        *,
        model: str | Model | None = None,
        tools: Iterable[Tool] = (),
        store: SessionStore | None = None,
    ) -> Self:
        """Makes the agent of a loaded file. `model` replaces the file's model, `tools` are added to the file's."""
        self = cls.__new__(cls)
        self._join(config, model, tools, (), store)
        return self

    def _join(
        self,
        config: LoadedConfig,
        model: str | Model | None,
        tools: Iterable[Tool],
        approve: Iterable[str],
        store: SessionStore | None,
        *,
        output: OutputType | None = None,
    ) -> None:
        own = None if isinstance(model, str) else model
        self._config = with_model(config, model) if isinstance(model, str) else config
        self._definition = build_agent(self._config, model=own, tools=_sources(tools, approve))
        if output is not None:
            self._definition = replace(self._definition, output=output)
        self._given_store = store
        self._store = store or build_memory(config)
        self._runs = Runs(self._definition, self._store, build_run_settings(config))
        self._started, self._starting, self._closed = False, asyncio.Lock(), False
        self._portal: _Portal | None = None

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def definition(self) -> AgentDefinition:
        """The definition that the server and `holodeck.run` use."""
        return self._definition

    @property
    def config(self) -> LoadedConfig:
        return self._config

    @property
    def given_store(self) -> SessionStore | None:
        """The `store` that the agent was made with."""
        return self._given_store

    async def start(self) -> None:
        """Connects to tool servers. The first question does it, if the program did not."""
        if self._closed:
            raise InvalidRequest("This agent is closed; create a new one, or close it later.")
        async with self._starting:  # several first questions may arrive at the same time
            if not self._started:
                await self._store.start()
                await self._definition.start()
                self._started = True

    async def close(self) -> None:
        """Ends running runs, and closes tool servers, model connections and the store."""
        self._closed = True
        await self._runs.close(0)
        try:
            await self._definition.close()
        finally:
            await self._store.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # a half-started tool server must not stay behind
            await self.close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def ask(
        self,
        message: str,
        *,
        session: str | None = None,
        user_id: str = ANONYMOUS_OWNER.user,
        files: str | Path | Sequence[str | Path] = (),
        approve: Approve | bool | None = None,
        timezone: str | None = None,
    ) -> Reply:
        """Asks and waits for the answer. Cancelling the call stops the run.

        `session` continues a conversation (`reply.session` names it). `approve` decides about tools that need approval:
        True, False, or a function of the question. Without it the reply `waits`, and `resume` answers.

        Raises:
            HoloDeckError: The run failed or was stopped; the class says how (`holodeck.errors`).
        """
        run = await self._begin(message, session, user_id, files, timezone)
        reply = await self._reply_of(run)
        for _ in range(MAX_APPROVALS):
            if not reply.waits or approve is None:
                break
            answers = {each.id: await _decided(each, approve=approve) for each in reply.interrupts}
            reply = await self.resume(reply.session, answers, user_id=user_id)
        return reply

    async def resume(self, session: str, answers: Mapping[str, bool], *, user_id: str = ANONYMOUS_OWNER.user) -> Reply:
        """Answers the questions of a reply that waits: interrupt id → approved."""
        owner, session = _owner_of(user_id), _text(session, "session", "reply.session")
        await self.start()
        decided = tuple(Resume(interrupt_id=key, approved=approved) for key, approved in answers.items())
        request = RunRequest(session_id=session, owner=owner, resume=decided)
        return await self._reply_of(await self._runs.start(request))

    async def stream(
        self,
        message: str,
        *,
        session: str | None = None,
        user_id: str = ANONYMOUS_OWNER.user,
        files: str | Path | Sequence[str | Path] = (),
        timezone: str | None = None,
    ) -> AsyncIterator[Event]:
        """Yields the events of a run as they happen (`holodeck.events`). Leaving the loop early stops the run."""
        run = await self._begin(message, session, user_id, files, timezone)
        try:
            async for event in follow(run.log):
                yield event
        finally:
            self._runs.stop(run)  # does nothing after the ending

    def ask_sync(self, message: str, **options: Any) -> Reply:
        """Like `ask`, for programs without an event loop. The agent runs in its own thread until `close_sync` or the program's end."""
        if self._portal is None:
            self._portal = _Portal()
            atexit.register(self.close_sync)  # otherwise the interpreter freezes the thread, then waits for it forever
        reply: Reply = self._portal.call(lambda: self.ask(message, **options))
        return reply

    def close_sync(self) -> None:
        """Like `close`, for programs without an event loop."""
        if self._portal is not None:
            atexit.unregister(self.close_sync)
            portal, self._portal = self._portal, None
            try:
                portal.call(self.close)
            finally:
                portal.close()

    async def _begin(
        self,
        message: str,
        session: str | None,
        user_id: str,
        files: str | Path | Sequence[str | Path],
        timezone: str | None,
    ) -> Run:
        if not isinstance(message, str) or not message.strip():
            raise InvalidRequest("message must be a non-empty string.", field="message")
        if session is not None and not is_valid_id(_text(session, "session", "reply.session")):
            raise InvalidRequest(f"session must have 1 to {MAX_ID_LENGTH} printable characters.", field="session")
        if timezone is not None and not is_zone(timezone):
            raise InvalidRequest("timezone must be an IANA name, e.g. Europe/Berlin.", field="timezone")
        owner = _owner_of(user_id)
        await self.start()
        paths = [files] if isinstance(files, str | Path) else files  # a text is also a sequence of its letters
        uploads = [Upload(data=await asyncio.to_thread(_bytes, Path(each)), name=Path(each).name) for each in paths]
        read = await build_files(self._config, self._config.agent.files.limits).read(uploads) if uploads else []
        content = (TextPart(message), *(each.part for each in read)) if read else message
        return await self._runs.start(
            RunRequest(
                session_id=session or new_ulid(),
                owner=owner,
                messages=(UserMessage(content=content),),
                files=tuple(each.note for each in read),
                properties={"timezone": timezone} if timezone else {},
            )
        )

    async def _reply_of(self, run: Run) -> Reply:
        try:
            await run.done()
        except asyncio.CancelledError:
            self._runs.stop(run)
            raise
        ending = run.log.kept[-1]
        if isinstance(ending, RunFailed):
            raise by_code(ending.code, ending.message, reason=ending.reason, retry_after=ending.retry_after)
        if not isinstance(ending, RunFinished) or ending.outcome is Outcome.CANCELLED:
            raise Cancelled("The run was stopped before it had answered.")
        result = run.result
        return Reply(
            text=(result.text if result else None) or "",
            session=run.session_id,
            run_id=run.run_id,
            outcome=ending.outcome,
            interrupts=ending.interrupts,
            tools=tuple(result.executions) if result else (),
            usage=ending.usage,
            model=ending.model,
            warning=ending.warning,
            output=result.output if result else None,
        )


async def load(
    path: str | Path = "agent.yaml",
    *,
    model: str | Model | None = None,
    tools: Iterable[Tool] = (),
    variables: Mapping[str, str] | None = None,
    store: SessionStore | None = None,
) -> Agent:
    """Loads and starts the agent of a file. `variables` are values for `${NAME}`, besides the environment's."""
    environment = None if variables is None else {**os.environ, **variables}
    agent = Agent.of_config(load_config(path, environment=environment), model=model, tools=tools, store=store)
    return await agent.__aenter__()


class _Portal:
    """An event loop in a thread, for callers without one."""

    def __init__(self) -> None:
        self._context: AbstractContextManager[BlockingPortal] = start_blocking_portal()
        self._portal = self._context.__enter__()

    def call(self, function: Callable[[], Awaitable[Any]]) -> Any:
        return self._portal.call(function)

    def close(self) -> None:
        self._context.__exit__(None, None, None)


def _sources(tools: Iterable[Tool], approve: Iterable[str]) -> list[Source]:
    names = [approve] if isinstance(approve, str) else approve  # a text is also an iterable of its letters
    return sources_of(tools, ToolRules(approval=dict.fromkeys(names, Approval.ALWAYS)))


async def _decided(interrupt: Interrupt, *, approve: Approve | bool) -> bool:
    decision = approve if isinstance(approve, bool) else approve(interrupt)
    answer = await decision if inspect.isawaitable(decision) else decision
    return answer is True


def _text(value: object, name: str, example: str) -> str:
    """Refuses the mistakes of programs that are not type-checked: a whole reply, a number from a database."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string, e.g. {example}, not {type(value).__name__}.", field=name)
    return value


def _owner_of(user_id: object) -> Owner:
    return Owner(ANONYMOUS_OWNER.tenant, _text(user_id, "user_id", "str(user.id)"))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path.name} cannot be read: {error.strerror}", field="files") from error
