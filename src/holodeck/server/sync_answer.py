"""Answers for clients that want a run's result in one piece: waits for its end, and sums up its events."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from holodeck.core.encoder import bare
from holodeck.core.events import (
    Ending,
    Event,
    RunFailed,
    RunFinished,
    StepStarted,
    TextAdded,
    ToolCallEnded,
    ToolFinished,
)
from holodeck.core.messages import ToolCall, ToolExecution, ToolStatus, text_of
from holodeck.core.tools import arguments_shown
from holodeck.errors import ShuttingDown
from holodeck.runs.middleware import EventMiddleware
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs
from holodeck.wires.reply import ReplyText


async def ending_of(runs: Runs, run: Run, receive: Receive) -> Ending:
    """Waits for the end of a run. Counts as a reader, so that a disconnect starts the run's grace period.

    Raises ShuttingDown if the run is left to another process.
    """
    if run.log.ended:
        return _last(run)
    with runs.attached(run):
        await has_left(receive, {run.abandoned} if run.task is None else {run.task, run.abandoned})
    return _last(run)


def _last(run: Run) -> Ending:
    while run.later is not None:
        run = run.later
    last = run.log.since(max(0, len(run.log) - 1))
    if not last or not isinstance(last[0], RunFinished | RunFailed):
        if run.log.is_cut:
            raise ShuttingDown("The server is shutting down and another one continues the run; ask again in a moment.")
        raise ClientDisconnect
    return last[0]


def answer_of(run: Run, ending: Ending, middleware: EventMiddleware) -> tuple[str, Sequence[ToolExecution]]:
    """Returns the run's own text and tools or, with a middleware, those of the events that it lets through."""
    result, executions = run.result, _executions_of(run)
    if middleware.is_empty:
        return (result.text if result is not None else None) or "", executions
    text, names, arguments = ReplyText(), dict[str, str](), dict[str, str]()
    for event in map(bare, (event for _, event in middleware(enumerate(_events_of(run))))):
        if isinstance(event, StepStarted):
            text.step_started()
        elif isinstance(event, TextAdded):
            text.add(event)
        elif isinstance(event, ToolCallEnded):
            arguments[event.call_id] = event.arguments
        elif isinstance(event, ToolFinished):
            names[event.call_id] = event.name
    shown = []
    for each in executions:
        if each.call_id in names:
            given = arguments.get(each.call_id)
            if given is None:  # a person approved the call: its arguments are in the log of the run before
                sent = msgspec.json.encode(each.parameters).decode()
                given = middleware.shown_arguments(ToolCall(id=each.call_id, name=each.tool_name, arguments=sent))
            shown.append(replace(each, tool_name=names[each.call_id], parameters=arguments_shown(given)))
    return text.answer(ending), shown


def _events_of(run: Run) -> Sequence[Event]:
    return [event for part in run.request_parts for event in part.log.kept]


def _executions_of(run: Run) -> Sequence[ToolExecution]:
    """The calls of a run that have a result, in the order of the results, also those before a crash."""
    if len(run.request_parts) == 1:
        return run.result.executions if run.result is not None else ()
    arguments, found = dict[str, str](), list[ToolExecution]()
    for event in _events_of(run):  # the result has only what came after the crash
        if isinstance(event, ToolCallEnded):
            arguments[event.call_id] = event.arguments
        elif isinstance(event, ToolFinished):
            text = text_of(event.content)
            found.append(
                ToolExecution(
                    tool_name=event.name,
                    call_id=event.call_id,
                    parameters=arguments_shown(arguments.get(event.call_id, "{}")),
                    status=ToolStatus.FAILED if event.failed else ToolStatus.SUCCESS,
                    result=None if event.failed else text,
                    error_message=(text or "failed") if event.failed else None,
                )
            )
    return found


async def has_left(receive: Receive, ends: "set[asyncio.Future[None]]", seconds: float | None = None) -> bool:
    """Waits for one of `ends`, at most so long, or for the client to disconnect. Returns whether the client has."""
    leaving = asyncio.create_task(_left(receive))
    try:
        done, _ = await asyncio.wait({leaving, *ends}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
    return leaving in done


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
