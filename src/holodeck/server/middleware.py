"""`middleware:` of an agent file → the stages that events pass on their way to an AG-UI reader (SRV-21)."""

import logging
from collections.abc import Callable, Sequence

from holodeck.config.load import LoadedConfig
from holodeck.config.schema import (
    AnnotateMiddleware,
    FilterMiddleware,
    FunctionMiddleware,
    LogMiddleware,
    Middleware,
    ThrottleMiddleware,
)
from holodeck.core.events import Event
from holodeck.errors import ConfigError
from holodeck.tools.function_files import load_function
from holodeck.wires.agui.middleware import FAMILIES, Chain, Stage, annotate, hide, hide_tools, own, throttle
from holodeck.wires.agui.middleware import log as log_stage

log = logging.getLogger(__name__)


def chain_factory(config: LoadedConfig) -> Callable[[], Chain] | None:
    """Makes a fresh chain for each reader; None if there is nothing to do. Mistakes show here, before anything listens."""
    makers = [_maker(config, number, each) for number, each in enumerate(config.agent.middleware)]
    if not makers:
        return None

    return lambda: Chain(stage for maker in makers for stage in maker())


def _maker(config: LoadedConfig, number: int, middleware: Middleware) -> Callable[[], Sequence[Stage]]:
    try:
        return _stages(config, middleware)
    except ConfigError as error:  # it knows what is wrong, the file knows where
        raise config.error(("middleware", number), error.message) from error


def _stages(config: LoadedConfig, middleware: Middleware) -> Callable[[], Sequence[Stage]]:
    match middleware:
        case LogMiddleware(deltas=deltas):
            return lambda: [log_stage(_report_event, deltas=deltas)]
        case FilterMiddleware(tools=tools, hide=families):
            return lambda: [hide(families), hide_tools(tools)]
        case ThrottleMiddleware(max_chars=limit):
            return lambda: [throttle(limit)]
        case AnnotateMiddleware(metadata=metadata, on=kinds):
            return lambda: [annotate(metadata, FAMILIES if kinds is None else kinds)]
        case FunctionMiddleware(file=file, function=name):
            function = load_function(file, name, config.folder)
            return lambda: [own(function, log.warning)]


def _report_event(n: int | None, event: Event) -> None:
    log.info("event %s: %s", n, type(event).__name__)
