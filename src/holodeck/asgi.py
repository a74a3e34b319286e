"""An agent as an ASGI application: to mount in FastAPI or Starlette, or to serve with an ASGI server of your own.

`holodeck serve` has limits for connections and slow clients that an ASGI application cannot have; the rest is the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holodeck.agent.definition import AgentDefinition
from holodeck.api import Agent
from holodeck.config.auth import build_access
from holodeck.config.build_stores import Stores, build_stores, stores_around
from holodeck.config.load import LoadedConfig, load_config
from holodeck.config.serving import ServeOptions
from holodeck.errors import InvalidRequest
from holodeck.server.app import Application
from holodeck.server.process import build_server, settings_of
from holodeck.server.wires import DEFAULT_WIRES, WIRES


def create_app(
    agent: Agent | str | Path,
    *,
    protocols: str | Sequence[str] = DEFAULT_WIRES,
    allowed_hosts: Sequence[str] = (),
    cors_origins: Sequence[str] = ("loopback",),
    root_path: str = "",
) -> Application:
    """The application of an agent: an agent file or its folder, or an `Agent`.

    It starts the agent with the events of `lifespan`. An application that is mounted gets none: pass its `lifespan` to the
    outer one, as in `FastAPI(lifespan=app.lifespan)`.

    Args:
        agent: With a file, everything in it holds: sessions, limits, `server.auth`. The conversations of an `Agent` are in its
            `store`, or in the one that its settings name, or else in memory. The application starts and closes the agent.
        protocols: As `holodeck serve --protocol`: a name, several, or "all".
        allowed_hosts: Names under which the server may be asked, besides those of this machine.
        cors_origins: Origins of web pages that may use it; "loopback" are pages of this machine.
        root_path: The path under which a proxy serves this server. A mount needs none.
    """
    names = (protocols,) if isinstance(protocols, str) else tuple(protocols)
    if "all" in names:
        names = tuple(WIRES)
    unknown = [name for name in names if name not in WIRES]
    if unknown or not names:
        raise InvalidRequest(
            f"protocols must name all, or at least one of {', '.join(WIRES)}, not {', '.join(unknown) or 'none'}."
        )
    config, definition = _parts(agent)
    options = ServeOptions(
        config=config,
        protocols=names,
        allowed_hosts=tuple(allowed_hosts),
        cors_origins=tuple(cors_origins),
        root_path=root_path,
    )
    access = build_access(config)
    settings = settings_of(options, keys=access.keys is not None)
    return Application(build_server(config, settings, access, agent=definition, stores=_stores(agent, config)))


def _stores(agent: Agent | str | Path, config: LoadedConfig) -> Stores:
    given = agent.given_store if isinstance(agent, Agent) else None
    return build_stores(config) if given is None else stores_around(given)


def _parts(agent: Agent | str | Path) -> tuple[LoadedConfig, AgentDefinition | None]:
    if not isinstance(agent, Agent):
        return load_config(agent), None
    config, sessions = agent.config, agent.config.agent.sessions
    if sessions.store is None:
        in_memory = config.agent.model_copy(update={"sessions": sessions.model_copy(update={"store": "memory"})})
        config = replace(config, agent=in_memory)
    return config, agent.definition
