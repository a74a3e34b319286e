"""The capabilities object is one that the SDK knows, member by member."""

import pytest
from ag_ui.core import AgentCapabilities
from pydantic import BaseModel

from holodeck.core.tools import Approval, ToolSchema
from holodeck.wires.agui.capabilities import capabilities

TOOLS = (
    ToolSchema(name="list_todos", description="Lists them"),
    ToolSchema(name="delete_todo", approval=Approval.ALWAYS),
    ToolSchema(name="change_background", on_client=True),
)


@pytest.mark.parametrize(
    "made",
    [
        capabilities(name="todo"),
        capabilities(
            name="todo",
            description="Keeps your todos",
            version="1.2",
            tools=TOOLS,
            max_iterations=15,
            timeout_seconds=30.0,
            state=True,
        ),
    ],
)
def test_the_sdk_knows_every_member(made: dict[str, object]) -> None:
    model = AgentCapabilities.model_validate(made)
    parts = [model, *(part for part in vars(model).values() if isinstance(part, BaseModel))]
    assert [part.model_extra for part in parts] == [{}] * len(parts)
    assert model.model_dump(mode="json", by_alias=True) == made


def test_only_what_holds_is_claimed() -> None:
    plain, rich = capabilities(name="a"), capabilities(name="a", tools=TOOLS, timeout_seconds=1.5)
    assert plain["humanInTheLoop"]["approvals"] is False
    assert rich["humanInTheLoop"]["approvals"] is True
    assert [tool["name"] for tool in rich["tools"]["items"]] == ["list_todos", "delete_todo"]
    assert rich["execution"] == {"codeExecution": False, "maxExecutionTime": 1500}
    assert "reasoning" not in plain
    assert plain["identity"] == {"name": "a", "type": "holodeck"}
