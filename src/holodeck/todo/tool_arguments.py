"""The arguments of each tool: one model per tool is its JSON Schema, its validation and the source of its errors.

The schemas use the part of JSON Schema that every model provider understands: no `anyOf`, no `null`, no `$ref`. Models
still send `null` for what they leave out, so `null` means "not given" for every argument. To remove a description, a
due date or the tags, an update gives the empty string or the empty list.
"""

import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from holodeck.todo.due_dates import shorten
from holodeck.todo.todo_values import Priority, Status, TodoError, checked_user

USER_ID, TENANT = "user_id", "tenant"


def _visible(text: str, kept: str = "") -> str:
    return "".join(c for c in text if c in kept or unicodedata.category(c) not in {"Cc", "Cs"})


def _one_line(value: object) -> object:
    return _visible(" ".join(value.split())).strip() if isinstance(value, str) else value


def _lines(value: object) -> object:
    return _visible(value, kept="\n\t").strip() if isinstance(value, str) else value


def _tag(value: object) -> object:
    return _visible(value).strip().lstrip("#").strip().lower() if isinstance(value, str) else value


def _id(value: object) -> object:
    return _visible(value).strip().lower() if isinstance(value, str) else value


# The constraint comes before the cleaning so that it applies to the cleaned text.
Title = Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_one_line)]
Description = Annotated[str, Field(max_length=4000), BeforeValidator(_lines)]
Tag = Annotated[str, Field(min_length=1, max_length=40), BeforeValidator(_tag)]
Tags = Annotated[list[Tag], Field(max_length=20), AfterValidator(lambda tags: list(dict.fromkeys(tags)))]
Line = Annotated[str, Field(max_length=200), BeforeValidator(_one_line)]
Identifier = Annotated[str, Field(max_length=64), BeforeValidator(_id)]
UserId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(checked_user)]

TodoId = Annotated[Identifier, Field(description="The id of the todo, as list_todos shows it.")]
TaskId = Annotated[Identifier, Field(description="The id of the task, as list_tasks shows it.")]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId = Field(description="Whose todos. Set by the runtime, not by the model.")
    tenant: UserId | None = Field(None, description="The tenant. Set by the runtime, not by the model.")
    timezone: Line | None = Field(None, description="IANA name of the user's time zone, e.g. Europe/Berlin.")

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}


class AddTask(Arguments):
    title: Title = Field(description="What is to be done.")
    description: Description = Field("", description="Details, if there are any.")


class CreateTodo(AddTask):
    due_date: Line = Field(
        "",
        description="When it is due, ISO 8601, e.g. 2026-11-16T15:00:00. Without an offset: the user's time zone. "
        "Without a time: the end of that day.",
    )
    priority: Priority = "medium"
    tags: Tags = Field([], description="Labels, e.g. home or work.")


class ListTodos(Arguments):
    status: Literal["pending", "completed", "all"] = "pending"
    priority: Priority | None = None
    due_date_filter: Line = Field("", description="today, this_week, overdue, or an ISO date such as 2026-11-16.")
    tags: Tags = Field([], description="Only todos that have all of these tags.")
    search: Line = Field("", description="Only todos with this text in their title, description or tags.")


class UpdateTodo(Arguments):
    todo_id: TodoId
    title: Title | None = None
    description: Description | None = Field(None, description='The new details; "" removes them.')
    due_date: Line | None = Field(None, description='The new due date, ISO 8601; "" removes it.')
    priority: Priority | None = None
    status: Status | None = None
    tags: Tags | None = Field(None, description="All the labels it has from now on; [] removes them.")


class DeleteTodo(Arguments):
    todo_id: TodoId
    confirmation: bool = Field(strict=True, description="Must be true, once the user has agreed to the deletion.")


class ListTasks(Arguments):
    status: Literal["pending", "completed", "all"] = "all"


class CompleteTask(Arguments):
    task_id: TaskId


class UpdateTask(Arguments):
    task_id: TaskId
    title: Title | None = None
    description: Description | None = Field(None, description='The new details; "" removes them.')


class DeleteTask(Arguments):
    task_id: TaskId


A = TypeVar("A", bound=Arguments)


class _PlainSchema(GenerateJsonSchema):
    """JSON Schema without parts that are redundant, or that some provider refuses."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002, a hook of pydantic: no field gets one
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        default = schema.get("default")
        return {**inner, "default": default} if default else inner


def schema_of(arguments: type[Arguments], *, fixed_user: bool, tenants: bool = False) -> dict[str, Any]:
    """Returns the schema. With `tenants`, every call must name one; without, none may."""
    schema = arguments.model_json_schema(schema_generator=_PlainSchema)
    schema = {key: value for key, value in schema.items() if key not in {"title", "description"}}
    required = schema.get("required", [])
    if fixed_user:
        del schema["properties"][USER_ID]
        required = [name for name in required if name != USER_ID]
    if tenants:
        required = [TENANT, *required]
    else:
        del schema["properties"][TENANT]
    if required or "required" in schema:
        schema["required"] = required
    return schema


def read_arguments(model: type[A], values: Mapping[str, Any]) -> A:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        sentences = (_sentence(model, detail) for detail in error.errors(include_url=False))
        raise TodoError("; ".join(sentences)) from None


_SENTENCES = {
    "missing": "{name} is required: {description}",
    "extra_forbidden": "{name} is not an argument of this tool; it takes {known}",
    "string_type": "{name} must be text, not {given}",
    "string_too_short": "{name} must not be empty",
    "string_too_long": "{name} is too long: at most {max_length} characters",
    "literal_error": "{name} {given} is not one of {expected}",
    "list_type": "{name} must be a list of strings, not {given}",
    "too_long": "{name} has too many entries: at most {max_length}",
    "bool_type": "{name} must be true or false, not {given}",
    "value_error": "{error}",
}


def _sentence(model: type[Arguments], detail: ErrorDetails) -> str:
    name, *index = (str(part) for part in detail["loc"])
    field = model.model_fields.get(name)
    template = _SENTENCES.get(detail["type"], "{name}: {message}")
    return template.format_map(
        {
            **detail.get("ctx", {}),
            "name": ".".join([name if name.isidentifier() else shorten(name), *index]),
            "given": shorten(detail["input"]),
            "known": ", ".join(name for name in model.model_fields if name != TENANT),
            "description": (field.description if field else None) or "please give it",
            "message": detail["msg"],
        }
    )
