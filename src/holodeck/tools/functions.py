"""Python functions as tools.

The agent's author writes the functions, and they run in this process. If they fail, hang or return something odd, the
caller still gets a result within the timeout. `holodeck.tools.function_files` loads them.
"""

import asyncio
import contextvars
import inspect
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from holodeck.core.events import ActivityPatched, ActivityShown, CustomSent, Emit, Event, WarningRaised
from holodeck.core.secrets import Redactor
from holodeck.core.text import clean, shorten
from holodeck.core.tools import TOOL_NAME, ToolResult, ToolSchema
from holodeck.errors import ConfigError
from holodeck.tools.names import unknown_tool
from holodeck.tools.port import CALL_SECONDS, MAX_RESULT_CHARS, ToolContext, ToolsetHealth
from holodeck.tools.signature import ArgumentsMismatch, name_of, read_signature

logger = logging.getLogger(__name__)

EMITTED_BY_TOOLS = (CustomSent, ActivityShown, ActivityPatched, WarningRaised)
MAX_THREADS = 32  # threads per toolset; functions that never return must not fill the process
_GRACE = 1.0  # seconds that a cancelled coroutine may take to clean up
_MAX_MESSAGE = 500
_MAX_ERROR = 40_000  # characters of an exception that are masked; masking blocks the event loop
# The folders of an absolute path, but not of a URL.
_FOLDERS = re.compile(r"(?<![\w:/.\\])(?:/|[A-Za-z]:\\)(?:[^\s'\"/\\:]+[/\\])+")

Redact: TypeAlias = Callable[[str], str]
Keywords: TypeAlias = Callable[[Mapping[str, Any], ToolContext], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class FunctionTool:
    """One function and how to call it. `keywords` turns JSON arguments into the function's own."""

    schema: ToolSchema
    function: Callable[..., Any]
    keywords: Keywords
    timeout: float = CALL_SECONDS
    max_result_chars: int = MAX_RESULT_CHARS

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float = CALL_SECONDS,
        max_result_chars: int = MAX_RESULT_CHARS,
    ) -> "FunctionTool":
        """Makes a tool from the signature and the docstring. Raises ConfigError if that is not possible."""
        signature = read_signature(function)
        tool_name = name or name_of(function)
        if not TOOL_NAME.fullmatch(tool_name):
            raise ConfigError(f"a tool cannot be called {tool_name!r}; use 1 to 64 letters, digits, _ and -")
        schema = ToolSchema(
            name=tool_name,
            description=signature.description if description is None else description,
            parameters=signature.parameters,
        )
        return cls(
            schema=schema,
            function=function,
            keywords=signature.keywords,
            timeout=timeout,
            max_result_chars=max_result_chars,
        )

    @cached_property
    def in_thread(self) -> bool:
        call = getattr(self.function, "__call__", None)  # noqa: B004  an object with an async __call__ is meant
        return not (inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call))


class FunctionToolset:
    """A toolset of functions.

    `redact` masks secrets in the texts of exceptions, which the model and the client read.
    """

    def __init__(
        self,
        functions: Sequence[FunctionTool],
        *,
        name: str = "functions",
        redact: Redact | None = None,
    ) -> None:
        self._name = name
        self._redact = redact or Redactor()
        self._tools = {tool.schema.name: tool for tool in functions}
        self._schemas = tuple(tool.schema for tool in functions)
        self._running: set[asyncio.Task[Any]] = set()
        self._threads = threading.BoundedSemaphore(MAX_THREADS)
        if len(self._tools) != len(functions):
            names = [schema.name for schema in self._schemas]
            twice = next(each for each in names if names.count(each) > 1)
            raise ConfigError(f"two functions are called '{twice}'; give one of them another name")

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_GRACE)

    def schemas(self) -> Sequence[ToolSchema]:
        return self._schemas

    def health(self) -> Sequence[ToolsetHealth]:
        return (ToolsetHealth(name=self._name, ready=True),)

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        tool = self._tools.get(name)
        if tool is None:
            return unknown_tool(name, self._tools)
        events = _ToolEvents(context.emit)
        try:
            emit = events.threadsafe if tool.in_thread else events.emit
            return await self._result(tool, tool.keywords(arguments, msgspec.structs.replace(context, emit=emit)))
        except ArgumentsMismatch as error:
            return ToolResult.failure(f"The arguments do not fit {name}:{error}")
        finally:
            events.close()

    async def _result(self, tool: FunctionTool, keywords: dict[str, Any]) -> ToolResult:
        """Runs the work in its own task, so that a coroutine that ignores cancellation can be abandoned."""
        work = asyncio.create_task(self._work(tool, keywords))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({work}, timeout=tool.timeout)
            finished = work.done()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=_GRACE)
        if not finished:
            return _too_late(tool)
        if work.cancelled():
            return ToolResult.failure(f"{tool.schema.name} failed: it cancelled itself")
        return work.result()

    async def _work(self, tool: FunctionTool, keywords: dict[str, Any]) -> ToolResult:
        try:
            value = await (self._in_thread(tool, keywords) if tool.in_thread else tool.function(**keywords))
            if inspect.isawaitable(value):  # a plain decorator around an async function
                value = await value
            return _rendered(tool, value)
        except (Exception, SystemExit) as error:  # a user's own code may raise anything: the model reads it
            logger.warning("the function tool %s failed", tool.schema.name, exc_info=error)
            passing = isinstance(error, ConnectionError | TimeoutError)
            return ToolResult.failure(f"{tool.schema.name} failed: {self._described(error)}", retryable=passing)

    def _described(self, error: BaseException) -> str:
        """Type and message of an exception, without folders of this machine and without secrets."""
        masked = self._redact(clean(str(error)[:_MAX_ERROR]))
        masked = masked[: _MAX_ERROR // 2]  # a secret that the first cut split is in the dropped half
        message = _FOLDERS.sub("", masked).strip()
        name = type(error).__name__
        return shorten(f"{name}: {message}" if message else name, _MAX_MESSAGE)

    async def _in_thread(self, tool: FunctionTool, keywords: dict[str, Any]) -> Any:
        """Runs each call in a daemon thread. A thread pool would fill up with hanging functions and delay shutdown."""
        if not self._threads.acquire(blocking=False):
            busy = f"{tool.schema.name} is busy: too many calls have not returned"
            return ToolResult.failure(busy, retryable=True, unsent=True)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        variables = contextvars.copy_context()

        def deliver(value: Any, error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_result((value, error))

        def run() -> None:
            value, error = None, None
            try:
                value = variables.run(tool.function, **keywords)
                value = value if inspect.isawaitable(value) else _rendered(tool, value)
            except BaseException as caught:  # noqa: BLE001  travels to the waiting task, whatever it is
                error = caught if isinstance(caught, Exception) else RuntimeError(f"it raised {type(caught).__name__}")
            finally:
                self._threads.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, value, error)

        threading.Thread(target=run, name=f"tool-{tool.schema.name}", daemon=True).start()
        value, error = await outcome
        if error is not None:
            raise error
        return value


class _ToolEvents:
    """Passes a function's events to the run until the call ends. Later events are dropped: the run may be over.

    Raises TypeError in the function for an event that tools may not emit, or that cannot be written as JSON.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._open = True
        self._loop = asyncio.get_running_loop()

    def emit(self, event: Event) -> None:
        if self._open:
            self._emit(_plain_event(event))

    def threadsafe(self, event: Event) -> None:
        if self._open:
            self._loop.call_soon_threadsafe(self._pass_on, _plain_event(event))

    def _pass_on(self, event: Event) -> None:
        if self._open:
            self._emit(event)

    def close(self) -> None:
        self._open = False


def _plain_event(event: Event) -> Event:
    """A copy that holds plain JSON values only, so that every wire can write it."""
    if not isinstance(event, EMITTED_BY_TOOLS):
        allowed = ", ".join(kind.__name__ for kind in EMITTED_BY_TOOLS)
        raise TypeError(f"a tool cannot emit {type(event).__name__}; it may emit {allowed}")
    try:
        return msgspec.json.decode(msgspec.json.encode(event), type=type(event))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the event {type(event).__name__} holds a value that cannot be written as JSON") from error


def _too_late(tool: FunctionTool) -> ToolResult:
    text = f"{tool.schema.name} did not answer in {tool.timeout:g} s"
    if tool.in_thread:
        text += "; it may still be running, its result will not be used"
    return ToolResult.failure(text, retryable=True)


def _rendered(tool: FunctionTool, value: Any) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    return ToolResult(content=shorten(clean(_text(value)), tool.max_result_chars))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    try:
        return to_json(value, fallback=_plain).decode()
    except (PydanticSerializationError, ValueError) as error:
        raise TypeError(f"it returned a {type(value).__name__} that cannot be written as JSON") from error


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
