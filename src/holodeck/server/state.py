"""The life of a server: five states, and which may follow which (SRV-03)."""

from enum import StrEnum


class ServerState(StrEnum):
    INITIALIZING = "initializing"  # listening, but the agent is not ready: 503
    READY = "ready"  # the agent can serve
    RUNNING = "running"  # it does
    SHUTTING_DOWN = "shutting_down"  # running streams may finish, new runs get 503
    STOPPED = "stopped"


NEXT = {
    ServerState.INITIALIZING: {ServerState.READY, ServerState.SHUTTING_DOWN},
    ServerState.READY: {ServerState.RUNNING, ServerState.SHUTTING_DOWN},
    ServerState.RUNNING: {ServerState.SHUTTING_DOWN},
    ServerState.SHUTTING_DOWN: {ServerState.STOPPED},
    ServerState.STOPPED: set[ServerState](),
}


def advance(state: ServerState, to: ServerState) -> ServerState:
    if to not in NEXT[state]:
        raise RuntimeError(f"a server that is {state} cannot become {to}")
    return to
