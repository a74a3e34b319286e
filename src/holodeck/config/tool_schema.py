"""The `tools:` blocks of agent.yaml."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from holodeck.blocks import FilePath, Identifier, Seconds
from holodeck.core.tools import Approval
from holodeck.tools.mcp_settings import CalledTool, McpServerBlock, OAuthSettings
from holodeck.tools.result_cache import CacheRule
from holodeck.tools.rules import ArgumentBindings, ToolRules

ToolDescription = Annotated[
    str,
    Field(
        max_length=4000,
        description="Shown to people. For a function it also replaces the docstring that the model sees",
    ),
]


class McpToolSettings(ToolRules, McpServerBlock):
    """The tools of an MCP server: a command that speaks MCP on stdin and stdout, or a URL."""

    type: Literal["mcp"]
    description: ToolDescription = ""
    cwd: FilePath | None = Field(
        None, description="The working folder of command, relative to agent.yaml; default: the agent's folder"
    )
    oauth: bool | OAuthSettings = Field(
        default=False, description="Sign in with OAuth: `holodeck login` opens the browser once, the tokens are kept"
    )
    start_timeout: Seconds | None = Field(
        None, description="Seconds for the server to start; default: mcp.start_timeout"
    )

    @model_validator(mode="after")
    def _signs_in_at_a_url(self) -> Self:
        if self.oauth and self.url is None:
            raise ValueError("oauth needs url, which is not set")
        return self


class FunctionToolSettings(CalledTool):
    """A Python function; its schema comes from its signature and docstring."""

    type: Literal["function"]
    description: ToolDescription = ""
    file: FilePath = Field(description="A Python file in the agent's folder")
    function: Identifier | None = Field(None, description="The function's name; default: the tool's name")
    bind: ArgumentBindings = Field(default={})
    approval: Approval = Field(Approval.NEVER, description="Whether a person must approve each call")
    repeatable: bool = Field(default=False, description="Whether it may be called again after a failure")
    cache: CacheRule | None = Field(None, description="Keep results for a while; not with approval: always")


def type_of(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return str(kind) if kind is not None else None


ToolSettings: TypeAlias = Annotated[
    Annotated[McpToolSettings, Tag("mcp")] | Annotated[FunctionToolSettings, Tag("function")],
    Discriminator(type_of),
]
