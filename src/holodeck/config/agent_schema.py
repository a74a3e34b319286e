"""agent.yaml as data: every block, key, default and bound. The JSON Schema for editors is made from here.

This module defines what may be written, not its effect: `holodeck.config.build` turns it into a model, tools and
limits. Every number, text and list is bounded (threat T18).
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
)

from holodeck.agent.settings import AgentLoopConfig, StateSettings, SystemPrompt
from holodeck.blocks import Block, FilePath, Identifier, ShortText, Url
from holodeck.config.auth_schema import AuthSettings
from holodeck.config.limit_schema import ServerLimits
from holodeck.config.model_schema import ModelSettings
from holodeck.config.tool_schema import ToolSettings, type_of
from holodeck.core.sizes import MB
from holodeck.files.limits import FileLimits
from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.runs.run_settings import KeptRuns
from holodeck.tools.mcp_settings import McpDefaults


class HistorySettings(Block):
    """How much of a long conversation the model is shown. The session keeps all of it."""

    max_messages: int | None = Field(
        None, ge=2, le=10_000, description="Newest messages that the model sees; default: sessions.max_messages"
    )
    max_tokens: int | None = Field(
        None,
        ge=100,
        le=10_000_000,
        description="Tokens that the model sees, estimated as four characters each; an image counts 1,000",
    )
    strategy: Literal["trim", "summarize"] = Field(
        "trim", description="Whole turns are left out, oldest first, or replaced by a summary that the model writes"
    )


class SessionSettings(Block):
    """Where and how long conversations are stored."""

    store: Literal["memory", "sqlite", "postgres"] | None = Field(
        None, description="Where conversations are kept; default: sqlite for `holodeck serve`"
    )
    url: SecretStr | None = Field(
        None,
        max_length=2048,
        validate_default=True,
        description="The database of store postgres: postgresql://user:password@host/name",
    )
    path: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="The file of store sqlite, relative to agent.yaml; default: .holodeck/sessions.db",
    )
    durability: Literal["full", "process"] = Field(
        "full",
        description="full: survives a power failure; process: survives only a crash of the process."
        " PostgreSQL has its own setting, synchronous_commit",
    )
    ttl_seconds: float | None = Field(
        None,
        ge=1,
        le=31_536_000,
        description="Seconds without a message before a conversation is deleted; default: 30 days in a file or database, 30 minutes in memory",
    )
    max_per_user: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Most conversations per user; the server deletes the least recently used one. Default: 10,000,"
        " and no limit for clients without a credential, who count as one user",
    )
    max_mb: float = Field(
        4, gt=0, le=1024, description="Largest conversation; a message that does not fit is refused (413)"
    )
    stored_mb: float = Field(
        1024,
        gt=0,
        le=1_048_576,
        description="All conversations of one user; the server deletes the least recently used ones",
    )
    max_messages: int = Field(
        200, ge=2, le=10_000, description="Newest messages that the model sees; older ones are left out"
    )
    history: HistorySettings = Field(
        HistorySettings(), description="How much of a long conversation the model sees, in more detail"
    )
    client_history: Literal["adopt", "ignore"] = Field(
        "adopt",
        description="Whether to use the history that a client sends for a session that the server does not know",
    )
    busy: Literal["queue", "reject"] = Field(
        "queue", description="A second message while a run is active: wait, or respond 409"
    )

    @field_validator("url")
    @classmethod
    def _fits_the_store(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        store = info.data.get("store")
        if store == "postgres" and (url is None or not url.get_secret_value()):
            raise ValueError("store postgres needs an address: url: ${DATABASE_URL}")
        if url is not None and store != "postgres":
            raise ValueError("only store postgres has a url; set store: postgres, or leave url out")
        return url


class ClusterSettings(Block):
    """Several servers that share one database (sessions.store: postgres): any of them serves any request."""

    valkey: SecretStr | None = Field(
        None,
        max_length=2048,
        description="A Valkey that carries streams and stops from server to server: valkey://host:6379, valkeys:// with TLS,"
        " valkey+sentinel://host,host,host/name",
    )
    take_over_seconds: float = Field(
        10, ge=2, le=300, description="Seconds without a sign of life before another server takes over a server's runs"
    )


AgentName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\W_][\w .-]*$")]
Prose = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100_000)]


class InstructionsFile(Block):
    """Instructions in a separate file."""

    file: FilePath = Field(description="A text file, relative to agent.yaml")


class InlineInstructions(Block):
    """Instructions inside the block, as upstream HoloDeck files write them."""

    inline: Prose = Field(description="The system prompt")


def _kind_of_instructions(value: object) -> str:
    if not isinstance(value, dict):
        return "file" if isinstance(value, InstructionsFile) else "text"
    return next((kind for kind in ("file", "inline") if kind in value), "prompt")


InstructionsSetting: TypeAlias = Annotated[
    Annotated[Prose, Tag("text")]
    | Annotated[InstructionsFile, Tag("file")]
    | Annotated[InlineInstructions, Tag("inline")]
    | Annotated[SystemPrompt, Tag("prompt")],
    Discriminator(_kind_of_instructions),
]


class RunsBlock(KeptRuns):
    """How long a run continues without readers, and how long it can be replayed."""

    stall_timeout: float = Field(
        30, gt=0, le=3600, description="Seconds before a client that reads nothing is disconnected"
    )
    on_crash: Literal["continue", "end"] = Field(
        "continue",
        description="What to do with a run that a crash interrupted: continue it when a client reconnects and no tool's effect is unknown, or end it",
    )
    max_concurrent: int = Field(1000, ge=1, le=100_000, description="Concurrent runs; more get 503")


class PushBlock(Block):
    """Push notifications to clients whose tasks change (A2A)."""

    allow_hosts: list[ShortText] = Field(
        default=[],
        max_length=100,
        description="Hosts that clients may name for push notifications, such as hooks.example.com; `*.` for all subdomains. "
        "None: no push notifications",
    )


class ServerBlock(Block):
    """Settings of `holodeck serve`: addresses, time limits, authentication and limits."""

    public_url: Url | None = Field(
        None, description="The server's own address for clients; discovery documents and challenges name it"
    )
    auth: AuthSettings = Field(AuthSettings(), description="Who may use the server")
    runs: RunsBlock = Field(RunsBlock(), description="How long a run outlives its readers")
    limits: ServerLimits = Field(ServerLimits(), description="Limits per address, key, user and tenant")
    max_connections: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Concurrent connections; more get 503. The limit of file descriptors may allow fewer",
    )
    shutdown_timeout: float = Field(
        5, ge=0, le=600, description="Seconds that running streams get to finish at shutdown"
    )
    push: PushBlock = Field(PushBlock(), description="Push notifications to clients whose tasks change")
    keepalive: float = Field(15, ge=1, le=300, description="Seconds of silence before a keep-alive")
    watchdog: bool = Field(True, description="Log what holds up the event loop for more than 200 ms")


class ModelBreakerConfig(CircuitBreakerConfig):
    """The same for a model, with other defaults: the agent calls it less often, and each call costs more."""

    failure_threshold: int = Field(3, ge=1, le=1000, description="Failures in a row that open the breaker")
    recovery_timeout: float = Field(60, gt=0, le=3600, description="Seconds before an open breaker allows trial calls")


class BreakersSettings(Block):
    """One breaker for each dependency."""

    model: ModelBreakerConfig = Field(ModelBreakerConfig(), description="For each model endpoint")
    mcp: CircuitBreakerConfig = Field(
        CircuitBreakerConfig(), description="For each MCP server, and for each of its tools"
    )


FILE_LIMITS = FileLimits()


class FileSettings(Block):
    """Uploads."""

    max_files: int = Field(FILE_LIMITS.max_files, ge=0, le=100, description="Most files in one request")
    max_file_mb: float = Field(
        FILE_LIMITS.max_file_bytes // MB, gt=0, le=1024, description="Largest file of a multipart request"
    )
    max_request_mb: float = Field(
        FILE_LIMITS.max_request_bytes // MB, gt=0, le=4096, description="Largest request with files"
    )
    allow_hosts: list[ShortText] = Field(
        default=[], max_length=100, description="Hosts that AG-UI file parts may name by URL; others are refused"
    )

    @property
    def limits(self) -> FileLimits:
        return FileLimits(
            max_files=self.max_files,
            max_file_bytes=round(self.max_file_mb * MB),
            max_request_bytes=round(self.max_request_mb * MB),
        )


class ObservabilitySettings(Block):
    """OpenTelemetry."""

    enabled: bool = Field(False, description="Send traces")
    otlp_endpoint: Url = Field("http://localhost:4318", description="A collector, over HTTP")
    service_name: ShortText | None = Field(None, description="Default: the agent's name")
    tenants: list[ShortText] = Field(
        default=[], max_length=50, description="Tenants with metrics of their own; all others are counted as `other`"
    )
    user_ids: bool = Field(False, description="Name the user of a run in its trace (`enduser.id`)")


class LogSettings(Block):
    """The log of `holodeck serve`."""

    user_ids: Literal["plain", "hashed"] = Field(
        "plain",
        description="How log lines name users: as they are, or by a hash with the key in HOLODECK_LOG_KEY "
        "(default: a new key with every start)",
    )


class OwnFunction(Block):
    """A function of the agent's author."""

    file: FilePath = Field(description="A Python file in the agent's folder")
    function: Identifier = Field(description="The function's name")


Family: TypeAlias = Literal["reasoning", "text", "tools", "state", "activity", "custom", "raw", "warnings", "messages"]


class LogMiddleware(Block):
    """Writes events to the log."""

    type: Literal["log"]
    deltas: bool = Field(False, description="Log the deltas of texts and arguments too, which are nearly all events")


class FilterMiddleware(Block):
    """Hides events from clients."""

    type: Literal["filter"]
    tools: list[Identifier] = Field(default=[], max_length=128, description="Tools whose calls are hidden")
    only: list[Identifier] | None = Field(
        None,
        max_length=128,
        description="Tools whose calls are shown; all others are hidden, including those added later",
    )
    hide: list[Family] = Field(default=[], max_length=9, description="Kinds of events that are hidden, e.g. reasoning")


class ThrottleMiddleware(Block):
    """Joins small pieces that wait for a slow reader."""

    type: Literal["throttle"]
    max_chars: int = Field(2000, ge=1, le=100_000, description="Characters of the largest joined piece")


class AnnotateMiddleware(Block):
    """Adds metadata for the client to events."""

    type: Literal["annotate"]
    metadata: dict[Identifier, Any] = Field(max_length=50, description="The members to add")
    on: list[Family] | None = Field(None, max_length=9, description="The kinds of events that get them; default: all")


class FunctionMiddleware(OwnFunction):
    """Your own function: takes an event; returns an event, several or none."""


def _kind_of_middleware(value: object) -> str | None:
    if isinstance(value, FunctionMiddleware) or (isinstance(value, dict) and value.keys() & {"file", "function"}):
        return "own"
    return type_of(value)


Middleware: TypeAlias = Annotated[
    Annotated[LogMiddleware, Tag("log")]
    | Annotated[FilterMiddleware, Tag("filter")]
    | Annotated[ThrottleMiddleware, Tag("throttle")]
    | Annotated[AnnotateMiddleware, Tag("annotate")]
    | Annotated[FunctionMiddleware, Tag("own")],
    Discriminator(_kind_of_middleware),
]


class CheckFunction(OwnFunction):
    """Your own function that refuses or changes what a user typed."""


class ChatBlock(Block):
    """The terminal chat."""

    checks: list[CheckFunction] = Field(
        default=[], max_length=20, description="Additional checks of what a user types, in this order"
    )


class AgentFile(Block):
    """One agent."""

    model_config = ConfigDict(title="HoloDeck agent")

    name: AgentName = Field(description="Letters, digits, spaces and . _ -; part of the REST address")
    description: ShortText = Field("", description="What the agent is for, in a sentence")
    model: ModelSettings = Field(description="Which model answers")
    instructions: InstructionsSetting | None = Field(
        None, description="The system prompt: text, {file: …}, {inline: …} or the four parts of SystemPrompt"
    )
    response_format: Annotated[dict[str, Any], Field(max_length=1000)] | FilePath | None = Field(
        None, description="The form of the final answer: a JSON Schema, or a JSON or YAML file that holds one"
    )
    loop: AgentLoopConfig = Field(AgentLoopConfig(), description="Limits that end a run")
    tools: list[ToolSettings] = Field(default=[], max_length=128, description="What the agent can do")
    mcp: McpDefaults = Field(McpDefaults(), description="Defaults of all MCP servers")
    sessions: SessionSettings = Field(SessionSettings(), description="Where and how long conversations are stored")
    cluster: ClusterSettings = Field(ClusterSettings(), description="Several servers that share one database")
    server: ServerBlock = Field(ServerBlock(), description="Times and limits of the server")
    circuit_breakers: BreakersSettings = Field(
        BreakersSettings(), description="When to stop calling an endpoint that keeps failing"
    )
    files: FileSettings = Field(FileSettings(), description="Limits of uploads")
    observability: ObservabilitySettings = Field(ObservabilitySettings(), description="OpenTelemetry")
    logs: LogSettings = Field(LogSettings(), description="The server's log")
    chat: ChatBlock = Field(ChatBlock(), description="The terminal chat")
    state: StateSettings | None = Field(None, description="State that agent and client share")
    middleware: list[Middleware] = Field(
        default=[], max_length=20, description="How events are changed before clients get them"
    )

    @property
    def loop_in_time(self) -> AgentLoopConfig:
        """`loop`. A step of a local model may take as long as the model, unless the file sets iteration_timeout."""
        if not self.model.is_local or "iteration_timeout" in self.loop.model_fields_set:
            return self.loop
        seconds = max(self.loop.iteration_timeout, self.model.idle_seconds)
        return self.loop.model_copy(update={"iteration_timeout": seconds})

    @field_validator("cluster")
    @classmethod
    def _shares_a_database(cls, cluster: ClusterSettings, info: ValidationInfo) -> ClusterSettings:
        sessions = info.data.get("sessions")
        if sessions is not None and sessions.store != "postgres":
            raise ValueError("servers share a database: set sessions: {store: postgres, url: …}, or leave cluster out")
        return cluster

    @field_validator("tools")
    @classmethod
    def _names_are_unique(cls, tools: list[Any]) -> list[Any]:
        seen: set[str] = set()
        for tool in tools:
            if tool.name in seen:
                raise ValueError(f"two tools are called {tool.name}; give each its own name")
            seen.add(tool.name)
        return tools
