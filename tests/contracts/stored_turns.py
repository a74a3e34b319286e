"""Messages that the contract of session stores keeps in every store."""

from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from holodeck.core.usage import TokenUsage
from tests.contracts.session_stores import ADA

STEP = [
    AssistantMessage(
        content="let me see",
        reasoning="hm",
        tool_calls=(ToolCall(id="c", name="t", arguments="{}", extra={"extra_content": {"google": {"sig": "x"}}}),),
        tokens_used=TokenUsage(prompt_tokens=1, completion_tokens=2),
        run_id="r",
    ),
    ToolMessage(call_id="c", name="t", content="42", failed=True, run_id="r"),
]
ENDING = RunFinished("r", "s")


async def conversation_of(store, name="s", **options):
    await store.create(name, owner=ADA)
    return await store.open(name, owner=ADA, **options)


async def turns(conversation, number, *, first=0):
    for index in range(first, first + number):
        await conversation.commit([UserMessage(content=f"question {index}", id=f"u{index}")])
        await conversation.commit([AssistantMessage(content=f"answer {index}", id=f"a{index}")])
