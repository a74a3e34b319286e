"""ToolBinding: a tool's name, its function schema and its coroutine, assembled by the caller (AGT-05).

For programs that use `run_agent` without an agent file. The runtime fills in `user_id` here too (AGT-07): the model
neither sees it nor sets it.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from holodeck.core.tools import ToolSchema
from holodeck.errors import ConfigError
from holodeck.tools.arguments import BoundArguments, declared_arguments, hide
from holodeck.tools.catalogue import Source
from holodeck.tools.functions import FunctionTool, FunctionToolset, Redact
from holodeck.tools.port import Toolset
from holodeck.tools.rules import ToolRules

BOUND: Mapping[str, str] = {"user_id": "{user_id}"}
"""The arguments that the runtime fills in, regardless of what the model sends."""


class _Function(BaseModel):
    model_config = ConfigDict(extra="allow")  # such as `strict`: accepted, not sent to models

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})

    @field_validator("parameters")
    @classmethod
    def _of_an_object(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        if parameters.get("type", "object") != "object":
            raise ValueError("parameters must be the JSON Schema of an object")
        return parameters


class ToolBinding(BaseModel):
    """`openai_function_schema` is {"type": "function", "function": {name, description, parameters}}."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    tool_name: str
    openai_function_schema: dict[str, Any]
    mcp_tool_reference: Callable[..., Any]

    @field_validator("openai_function_schema")
    @classmethod
    def _a_function_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type") != "function":
            raise ValueError('the schema must start with {"type": "function"}')
        _Function.model_validate(schema.get("function"))
        return schema

    @field_validator("mcp_tool_reference")
    @classmethod
    def _a_coroutine_function(cls, reference: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(reference) and not inspect.iscoroutinefunction(type(reference).__call__):
            raise ValueError("mcp_tool_reference must be an async function; write 'async def'")
        return reference

    @model_validator(mode="after")
    def _one_name(self) -> "ToolBinding":
        described = self.openai_function_schema["function"]["name"]
        if described != self.tool_name:
            raise ValueError(f"the schema is of '{described}', the binding of '{self.tool_name}'")
        return self


Tool: TypeAlias = Callable[..., Any] | FunctionTool | ToolBinding | Toolset
"""The kinds of tools that Python callers may pass: a plain function, a binding, or a whole toolset."""


def sources_of(
    tools: Iterable[Tool], rules: ToolRules, *, names_checked: bool = False, redact: Redact | None = None
) -> list[Source]:
    """Sources for a catalogue. With `names_checked`, a rule that matches no tool is not an error."""
    toolsets: list[Toolset] = []
    bindings: list[ToolBinding] = []
    plain: list[FunctionTool] = []
    for each in tools:
        if isinstance(each, ToolBinding):
            bindings.append(each)
        elif isinstance(each, FunctionTool):
            plain.append(each)
        elif callable(each):
            plain.append(FunctionTool.of(each))
        elif hasattr(each, "schemas"):
            toolsets.append(each)
        else:
            raise ConfigError(
                f"tools: {type(each).__name__} is not a tool; pass a function, a ToolBinding or a Toolset"
            )
    if plain:
        toolsets.append(FunctionToolset(plain, redact=redact))
    if bindings:
        toolsets.append(toolset_of(bindings, redact=redact))
    return [Source(toolset=each, rules=rules, names_checked=names_checked) for each in toolsets]


def toolset_of(bindings: Sequence[ToolBinding], *, redact: Redact | None = None) -> Toolset:
    return FunctionToolset([_tool(binding) for binding in bindings], name="bindings", redact=redact)


def _tool(binding: ToolBinding) -> FunctionTool:
    """Makes a tool.

    Its calls may be repeated after a network failure or a timeout, if `enable_retry` is set.
    """
    function = _Function.model_validate(binding.openai_function_schema["function"])
    declared = declared_arguments(function.parameters)
    takes_user = _takes_user(binding.mcp_tool_reference, declared)
    bound = BoundArguments(BOUND, {*declared, "user_id"} if takes_user else declared - {"user_id"})
    schema = ToolSchema(
        name=function.name,
        description=function.description,
        parameters=hide(function.parameters, BOUND),
        repeatable=True,
    )
    return FunctionTool(schema=schema, function=binding.mcp_tool_reference, keywords=bound.fill)


def _takes_user(reference: Callable[..., Any], declared: set[str]) -> bool:
    """Whether the function takes `user_id`: by name, or by `**kwargs` if the schema declares it."""
    parameters = inspect.signature(reference).parameters
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return "user_id" in parameters or (open_ended and "user_id" in declared)
