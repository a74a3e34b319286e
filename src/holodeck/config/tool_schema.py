"""The `tools:` blocks of agent.yaml, and the text types that all blocks share."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from holodeck.core.tools import Approval
from holodeck.tools.mcp_settings import McpSettings


class Block(BaseModel):
    """A block of keys. An unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=False)


def _as_written(value: object) -> object:
    """Turns YAML's numbers and booleans into text: `env: {PORT: 8080, DEBUG: true}`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


NO_NUL = r"^[^\x00]*$"  # the operating system allows none in a path, an argument or a variable

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\s\x00-\x1f]+$")]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
ToolPattern = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_*?\[\]!-]+$")]
FilePath = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024, pattern=NO_NUL)]
Url = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2048, pattern=r"^https?://[^\s/]+")]
Text = Annotated[str, BeforeValidator(_as_written), StringConstraints(max_length=16_384, pattern=NO_NUL)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


def _rule_for_all(value: object) -> object:
    """Expands `approval: always` to `approval: {"*": always}`."""
    if not isinstance(value, str):
        return value
    if value not in list(Approval):
        raise ValueError(f"'{value}' is not one of {', '.join(Approval)}, nor a block of tools with these")
    return {"*": value}


_ByTool = Annotated[dict[ToolPattern, Approval], Field(max_length=128)]
ApprovalRules = Annotated[_ByTool, BeforeValidator(_rule_for_all, json_schema_input_type=Approval | _ByTool)]


class CacheSettings(Block):
    """A cache of results. It never holds results of tools that need approval, and never failures."""

    seconds: float = Field(gt=0, le=86_400, description="Seconds that a result is kept")
    per: Literal["user", "tenant", "all"] = Field("user", description="Who shares a result for the same arguments")


class ToolBlock(Block):
    """Settings that all tools share."""

    name: ToolName = Field(description="Letters, digits, - and _; shown in messages")
    description: str = Field(
        "",
        max_length=4000,
        description="Shown to people. For a function it also replaces the docstring that the model sees",
    )
    bind: dict[Identifier, Any] = Field(
        default={}, max_length=20, description="Arguments filled in by the runtime and hidden from the model"
    )
    timeout: Seconds = Field(
        McpSettings.timeout,
        description="Seconds for one call; less than loop.iteration_timeout, so that the model gets the error",
    )


class OAuthSettings(Block):
    """Sign-in at a server that requires OAuth."""

    client_id: Text | None = Field(
        None, description="The id of a client that you registered; default: HoloDeck registers itself"
    )
    client_secret: Text | None = Field(None, description="The client's secret, if it has one")
    scope: Text | None = Field(None, description="The scope to request; default: what the server names")


class McpToolSettings(ToolBlock):
    """The tools of an MCP server: a command that speaks MCP on stdin and stdout, or a URL."""

    type: Literal["mcp"]
    transport: Literal["stdio", "http", "sse"] | None = Field(
        None, description="Default: stdio with command, http with url; sse: the older HTTP transport of MCP"
    )
    command: FilePath | None = Field(None, description="The program to run; no shell is involved")
    args: list[Text] = Field(default=[], max_length=100, description="Its arguments")
    env: dict[Identifier, Text] = Field(
        default={}, max_length=100, description="Variables that it gets besides PATH, HOME, …"
    )
    cwd: FilePath | None = Field(
        None, description="Its working folder, relative to agent.yaml; default: the agent's folder"
    )
    url: Url | None = Field(None, description="A streamable HTTP endpoint, or with transport sse the older kind")
    headers: dict[Identifier, Text] = Field(default={}, max_length=50, description="Sent with every request to url")
    oauth: bool | OAuthSettings = Field(
        default=False, description="Sign in with OAuth: `holodeck login` opens the browser once, the tokens are kept"
    )
    prefix: Annotated[str, StringConstraints(max_length=32, pattern=r"^[A-Za-z0-9_-]*$")] = Field(
        "", description="Put before the name of each tool, so that two servers may have tools of the same name"
    )
    include: list[ToolPattern] | None = Field(
        None, max_length=128, description="Only these tools are offered; names or patterns such as get_*"
    )
    exclude: list[ToolPattern] = Field(
        default=[], max_length=128, description="These tools are not offered; names or patterns"
    )
    approval: ApprovalRules = Field(
        default={},
        description="Tools that wait for a person's approval: one rule for all, or rules by name, pattern and *",
    )
    repeatable: bool | Annotated[list[ToolPattern], Field(max_length=128)] | None = Field(
        None,
        description="Tools that may be called again after a failure; default: those that the server marks as "
        "read-only or idempotent",
    )
    cache: dict[ToolPattern, CacheSettings] = Field(
        default={}, max_length=128, description="Tools whose results are kept for a while, by name or pattern"
    )
    start_timeout: Seconds | None = Field(
        None, description="Seconds for the server to start; default: mcp.start_timeout"
    )
    required: bool = Field(McpSettings.required, description="Whether the agent needs it to be ready")
    max_result_chars: int = Field(
        McpSettings.max_result_chars,
        ge=100,
        le=1_000_000,
        description="Longest result that the model gets, in characters",
    )

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give it either a command (a program) or a url (an HTTP endpoint)")
        if self.transport and (self.transport == "stdio") != (self.command is not None):
            raise ValueError(f"transport {self.transport} needs {'command' if self.transport == 'stdio' else 'url'}")
        for key, value, needs in (
            ("args", self.args, "command"),
            ("env", self.env, "command"),
            ("headers", self.headers, "url"),
            ("oauth", self.oauth, "url"),
        ):
            if value and getattr(self, needs) is None:
                raise ValueError(f"{key} needs {needs}, which is not set")
        return self


class McpDefaults(Block):
    """Defaults for MCP servers. A server's own settings replace them."""

    start_timeout: Seconds = Field(
        McpSettings.start_timeout, description="Seconds for a server to start; npx and uvx download it first"
    )


class FunctionToolSettings(ToolBlock):
    """A Python function; its schema comes from its signature and docstring."""

    type: Literal["function"]
    file: FilePath = Field(description="A Python file in the agent's folder")
    function: Identifier | None = Field(None, description="The function's name; default: the tool's name")
    approval: Approval = Field(Approval.NEVER, description="Whether a person must approve each call")
    repeatable: bool = Field(default=False, description="Whether it may be called again after a failure")
    cache: CacheSettings | None = Field(None, description="Keep results for a while; not with approval: always")


def type_of(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return str(kind) if kind is not None else None


ToolSettings: TypeAlias = Annotated[
    Annotated[McpToolSettings, Tag("mcp")] | Annotated[FunctionToolSettings, Tag("function")],
    Discriminator(type_of),
]
