"""A conversation as a Markdown page that people can read and send on."""

from collections.abc import Iterable

from holodeck.cli.conversation.session import ChatSession
from holodeck.cli.plain_display import call_text
from holodeck.core.messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from holodeck.core.text import one_line, shorten, terminal_safe

SHORT_RESULT = 500


def to_markdown(session: ChatSession, messages: Iterable[Message] | None = None) -> str:
    """`messages` are those to show, if not all."""
    head = f"# {session.title or session.agent_name}\n\n{session.agent_name}, {session.started_at:%Y-%m-%d %H:%M} UTC"
    return (
        "\n\n".join([head, *filter(None, map(_section, session.transcript.messages if messages is None else messages))])
        + "\n"
    )


def _section(message: Message) -> str:
    match message:
        case UserMessage():
            return f"## You\n\n{terminal_safe(text_of(message.content))}"
        case AssistantMessage():
            return "\n\n".join(filter(None, [_reply(message), *_calls(message)]))
        case ToolMessage():
            mark = "✗" if message.failed else "✓"
            result = shorten(terminal_safe(text_of(message.content)).strip(), SHORT_RESULT)
            quoted = result.replace("\n", "\n> ")
            return f"> {mark} {one_line(message.name)}\n>\n> {quoted}"


def _reply(message: AssistantMessage) -> str:
    if not message.content:
        return ""
    cut = f"\n\n*({one_line(message.cut)})*" if message.cut else ""
    return f"## Agent\n\n{terminal_safe(message.content)}{cut}"


def _calls(message: AssistantMessage) -> list[str]:
    return [f"`{call_text(call.name, call.arguments, short=True)}`" for call in message.tool_calls]
