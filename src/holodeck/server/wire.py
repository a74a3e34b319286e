"""A wire as one value: the command line, the banner, the routes and the documentation are made from it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from holodeck.server.agent_server import AgentServer, OpenEncoder
from holodeck.server.routing import Operation, Routes


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One protocol that clients may speak. Each module in `routes/` that serves one ends with it.

    `endpoints` are pairs of a label and an address in which `{name}` stands for the agent. `example` is the body of a
    POST to the first of them, as a user pastes it into a shell within single quotes.
    """

    name: str  # as `--protocol` takes it
    title: str
    endpoints: Sequence[tuple[str, str]]
    example: str
    routes: Sequence[Routes]
    open_encoder: OpenEncoder  # for every reader of its runs, in the process that started them or another
    prepare: Callable[[AgentServer], object] | None = None  # called with a server that speaks it, before it starts
    is_default: bool = False  # whether a server speaks it unless it is started with other protocols
    base: str = ""  # the path at the end of its clients' base URL, which people forget: the 404 then names it
    has_playground: bool = False  # whether the page at `/` speaks it
    request_headers: Sequence[str] = ()  # further headers that its clients send; `X-Stainless-*` is a prefix
    response_headers: Sequence[str] = ()  # further response headers that pages may read

    def path_of(self, agent: str) -> str:
        """Returns the path of its first endpoint, for this agent."""
        return self.endpoints[0][1].format(name=quote(agent))

    def curl(self, base: str, agent: str, options: str = "") -> str:
        """Returns a command that tries it. `base` is the server's address, without a trailing slash."""
        address = base + self.path_of(agent)
        return f"curl -N{options} {address} -H 'Content-Type: application/json' -d '{self.example}'"

    @property
    def operations(self) -> list[Operation]:
        return [operation for routes in self.routes for operation in routes.operations]
