"""The slash commands of a chat. Help, completion and dispatch read one table."""

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, get_args

from holodeck.access.private_file import write_private
from holodeck.cli.conversation.archive import save_chat, typed_path
from holodeck.cli.conversation.chat_context import ChatContext
from holodeck.cli.conversation.session import ChatSession, counted
from holodeck.cli.models import model_line
from holodeck.cli.plain_display import call_text
from holodeck.core.messages import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from holodeck.core.text import one_line, shorten, terminal_safe
from holodeck.core.tools import Approval, ToolSchema
from holodeck.errors import HoloDeckError, InvalidRequest, ToolUnavailable
from holodeck.models.price import Price
from holodeck.models.providers import ProviderName
from holodeck.sessions.port import ServerSession
from holodeck.tools.names import suggestion
from holodeck.tools.port import ServerDocument

if TYPE_CHECKING:  # the chat starts without importing MCP
    from holodeck.tools.mcp_library import McpLibrary
    from holodeck.tools.mcp_wire import ListedPrompt


SHORT_LINE = 100
LONG_LINE = 300
SHORT_DESCRIPTION = 60
SHORT_LIST = 20
LONGEST_NUMBER = 3  # digits; a longer number is part of an id
COPY_LIMIT = 75_000  # characters: terminals ignore longer clipboard sequences
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]")
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)


class Exit(NamedTuple):
    """The user wants to leave."""


class Retry(NamedTuple):
    """The user wants another answer to this message."""

    message: UserMessage


class Send(NamedTuple):
    """The user wants to send this text."""

    text: str


CommandOutcome: TypeAlias = Exit | Retry | Send | None


class Command(NamedTuple):
    help: str
    run: Callable[[ChatContext, str], Awaitable[CommandOutcome]]
    argument: str = ""


async def dispatch(context: ChatContext, line: str) -> CommandOutcome:
    """Runs a line that starts with a slash. Raises HoloDeckError with a sentence for the user."""
    name, _, argument = line.partition(" ")
    name = ALIASES.get(name.lower(), name.lower())
    command = COMMANDS.get(name)
    if command is None:
        near = suggestion(name, [*COMMANDS, *ALIASES]) or "; /help lists the commands."
        raise InvalidRequest(f"There is no {one_line(name, 30)}{near}")
    return await command.run(context, argument.strip())


async def _help(context: ChatContext, _argument: str) -> None:
    usages = [f"{name} {command.argument}".rstrip() for name, command in COMMANDS.items()]
    width = max(map(len, usages))
    for usage, command in zip(usages, COMMANDS.values(), strict=True):
        context.say(f"{context.paint.bold(usage.ljust(width))}  {command.help}")
    context.say(context.paint.dim("Alt+Enter starts a new line, Ctrl+X Ctrl+E opens $EDITOR."))
    context.say(context.paint.dim("Ctrl+C stops an answer or clears the line, Ctrl+D exits."))


async def _clear(context: ChatContext, _argument: str) -> None:
    context.change_session(ChatSession(agent_name=context.session.agent_name))
    context.say(context.paint.dim("A new conversation."))


async def _history(context: ChatContext, _argument: str) -> None:
    if not context.session.message_count:
        context.say(context.paint.dim("The conversation is empty."))
    for message in context.shown_messages:
        for line in _shown(message):
            context.say(line)


def _shown(message: Message) -> list[str]:
    match message:
        case UserMessage():
            return [f"> {one_line(text_of(message.content), SHORT_LINE)}"]
        case AssistantMessage():
            text = [f"  {one_line(message.content, SHORT_LINE)}{_cut(message)}"] if message.content else []
            return text + [f"  → {call_text(call.name, call.arguments, short=True)}" for call in message.tool_calls]
        case ToolMessage():
            mark = "✗" if message.failed else "✓"
            return [f"  {mark} {one_line(message.name)}: {one_line(text_of(message.content), SHORT_LINE)}"]


def _cut(message: AssistantMessage) -> str:
    return f" [{one_line(message.cut)}]" if message.cut else ""


async def _save(context: ChatContext, argument: str) -> None:
    if argument:
        save_chat(context.session, typed_path(argument))
        context.say(f"Saved to {typed_path(argument)}")
    else:
        await context.store.keep(context.session)
        context.say(f"Saved as {one_line(context.session.session_id)}")
    shown = shlex.quote(argument or context.session.session_id)
    context.say(context.paint.dim(f"holodeck chat --resume {shown} continues it."))


async def _load(context: ChatContext, argument: str) -> None:
    if not argument:
        entries = (await context.store.entries())[:SHORT_LIST]
        width = len(str(len(entries)))
        for number, line in enumerate(listed(entries, context.store.agent_name), 1):
            context.say(f"{number:>{width}}  {line}" if entries else line)
        if entries:
            context.say(context.paint.dim("/load NUMBER continues one."))
        return
    session = await context.store.find(await _numbered(context, argument))
    context.change_session(session)
    context.say(f"{counted(session.message_count)}: {session.title}")
    context.show_last_exchange()


async def _numbered(context: ChatContext, argument: str) -> str:
    if not argument.isdecimal() or len(argument) > LONGEST_NUMBER:
        return argument
    entries = (await context.store.entries())[:SHORT_LIST]
    if not 0 < int(argument) <= len(entries):
        raise InvalidRequest(f"There is no chat number {argument}; /load lists them.")
    return entries[int(argument) - 1].session_id


def listed(entries: Sequence[ServerSession], agent_name: str) -> list[str]:
    width = max((len(one_line(each.session_id)) for each in entries), default=0)
    return [_entry_line(each, width, agent_name) for each in entries] or ["There are no saved chats."]


def _entry_line(entry: ServerSession, width: int, agent_name: str) -> str:
    when = entry.last_activity.astimezone()
    title = one_line(entry.title, SHORT_DESCRIPTION)
    return f"{one_line(entry.session_id):<{width}}  {when:%Y-%m-%d %H:%M}  {one_line(agent_name, 20)}  {title}"


async def _tools(context: ChatContext, argument: str) -> None:
    agent = await context.starting.get()
    tools = context.new_middleware().shown_tools(agent.tools.schemas())
    if argument:
        _one_tool(context, argument, tools)
        return
    missing = [each for each in agent.tools.health() if not each.ready]
    if not (tools or missing):
        context.say(context.paint.dim("The agent has no tools."))
    for tool in tools:
        what = context.paint.dim(one_line(tool.description, SHORT_DESCRIPTION))
        context.say(f"{_tool_name(context, tool)}  {what}")
    for health in missing:
        context.say(
            context.paint.yellow(f"! {one_line(health.name)} is not available: {one_line(health.detail or '')}")
        )


def _one_tool(context: ChatContext, name: str, tools: Sequence[ToolSchema]) -> None:
    tool = next((each for each in tools if each.name == name), None)
    if tool is None:
        near = suggestion(name, [each.name for each in tools]) or "; /tools lists them."
        raise InvalidRequest(f"There is no tool {one_line(name, SHORT_DESCRIPTION)}{near}")
    context.say(_tool_name(context, tool))
    for line in terminal_safe(tool.description or "It has no description.").splitlines():
        context.say(line)
    for line in terminal_safe(json.dumps(tool.parameters, indent=2, ensure_ascii=False)).splitlines():
        context.say(context.paint.dim(line))


def _tool_name(context: ChatContext, tool: ToolSchema) -> str:
    return context.paint.bold(one_line(tool.name)) + (" (asks first)" if tool.approval is Approval.ALWAYS else "")


async def _model(context: ChatContext, argument: str) -> None:
    if argument and context.models.is_fixed and not _names_provider(argument):
        raise InvalidRequest(
            "The demo model has no other models beside it; /model PROVIDER/NAME switches to a provider's model."
        )
    agent = await (context.starting.use_model(argument) if argument else context.starting.get())
    price = context.starting.choice.price
    context.say(" · ".join([one_line(agent.model.name), *([_price(price)] if price else [])]))
    if argument:
        await _warn_of_unlisted(context, argument)
    elif not context.models.is_fixed:
        await _list_models(context)


def _names_provider(argument: str) -> bool:
    return argument == "demo" or argument.partition("/")[0] in get_args(ProviderName)


async def _warn_of_unlisted(context: ChatContext, name: str) -> None:
    names = () if _names_provider(name) else await context.models.names()
    if names and name not in names:
        context.complain(f"! the endpoint does not list {one_line(name)}{suggestion(name, names)}")


async def _list_models(context: ChatContext) -> None:
    try:
        offered = await context.models.offered()
    except HoloDeckError as error:
        context.say(context.paint.dim(one_line(error.message, LONG_LINE)))
        return
    for each in offered[:SHORT_LIST]:
        context.say(model_line(each, context.starting.choice.name, context.paint))
    if len(offered) > SHORT_LIST:
        context.say(
            context.paint.dim(f"… and {len(offered) - SHORT_LIST} more; Tab after /model completes their names.")
        )
    context.say(context.paint.dim("/model NAME changes it for this chat."))


def _price(price: Price) -> str:
    cached = "" if price.cached is None else f", {price.cached:g} cached"
    return f"{price.input:g} in, {price.output:g} out{cached} per million tokens"


async def _retry(context: ChatContext, _argument: str) -> CommandOutcome:
    await context.store.refresh(context.session)  # a retry drops what follows the message: others may have added turns
    message = context.session.last_question
    if message is None:
        raise InvalidRequest("There is no message to send again.")
    return Retry(message)


async def _export(context: ChatContext, argument: str) -> None:
    path = typed_path(argument or f"chat-{_NOT_IN_FILE_NAMES.sub('_', context.session.session_id)}.md")
    _write_new(path, to_markdown(context.session, context.shown_messages))
    context.say(f"Wrote {path}")


def _write_new(path: Path, text: str) -> None:
    try:
        if path.exists():
            raise InvalidRequest(f"{path} exists; name another file.")
        write_private(path, text.encode())
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from error


async def _attach(context: ChatContext, argument: str) -> None:
    if "://" in argument and not argument.startswith("file://"):
        agent = await context.starting.get()
        for document in await read_resource(agent.tools.libraries, argument):
            context.attachments.add_document(document)
    elif argument:
        context.attachments.add(argument)
    context.show_attachments()


async def _prompts(context: ChatContext, argument: str) -> CommandOutcome:
    libraries = (await context.starting.get()).tools.libraries
    if argument:
        return Send(await filled_prompt(libraries, argument))
    lines = await listed_prompts(libraries)
    _list(context, lines, "/prompts NAME ARGUMENT=VALUE … sends one." if lines else "The tool servers have no prompts.")
    return None


async def _resources(context: ChatContext, _argument: str) -> None:
    lines = await listed_resources((await context.starting.get()).tools.libraries)
    none = "The tool servers have no resources."
    _list(context, lines, "/attach URI sends one with the next message." if lines else none)


def _list(context: ChatContext, lines: Iterable[tuple[str, str]], hint: str) -> None:
    for name, about in lines:
        context.say(
            f"{context.paint.bold(one_line(name, LONG_LINE))}  {context.paint.dim(one_line(about, SHORT_LINE))}"
        )
    context.say(context.paint.dim(hint))


async def _detach(context: ChatContext, argument: str) -> None:
    for name in context.attachments.remove(argument):
        context.say(f"{one_line(name)} is no longer attached.")
    context.show_attachments()


async def _copy(context: ChatContext, argument: str) -> None:
    """Copies the last answer, or the last code in it, to the clipboard with OSC 52, which also works over SSH."""
    text = "" if context.last_reply is None else context.last_reply.content
    if argument not in {"", "code"}:
        raise InvalidRequest("/copy copies the last answer, /copy code the last code block in it.")
    if argument == "code":
        text = last_code(text)
    if not text:
        raise InvalidRequest("There is no code to copy." if argument else "There is no answer to copy.")
    if len(text) > COPY_LIMIT:
        raise InvalidRequest(
            f"{len(text):,} characters are too many for the terminal's clipboard; /export writes a file."
        )
    context.clipboard(text)
    context.say(
        context.paint.dim(f"Copied {len(text):,} characters, if the terminal allows programs to set its clipboard.")
    )


def last_code(markdown: str) -> str:
    found = _FENCE.findall(markdown)
    return str(found[-1][1]) if found else ""


async def _reasoning(context: ChatContext, _argument: str) -> None:
    replies = [each for each in context.shown_messages if isinstance(each, AssistantMessage)]
    thoughts = terminal_safe(next((each.reasoning for each in reversed(replies) if each.reasoning), ""))
    for line in thoughts.splitlines() or ["The model has not sent any reasoning."]:
        context.say(context.paint.dim(line))


async def _verbose(context: ChatContext, _argument: str) -> None:
    context.display.verbose = not context.display.verbose
    context.say(f"Details are {'shown' if context.display.verbose else 'hidden'}.")


async def _exit(_context: ChatContext, _argument: str) -> CommandOutcome:
    return Exit()


COMMANDS = {
    "/help": Command("list the commands", _help),
    "/clear": Command("start a new conversation", _clear),
    "/history": Command("show the conversation so far", _history),
    "/save": Command("save this chat, or a copy of it to a file", _save, "[FILE]"),
    "/load": Command("list the saved chats, or continue one", _load, "[N|ID|FILE]"),
    "/tools": Command("list the agent's tools, or describe one", _tools, "[NAME]"),
    "/prompts": Command("list the tool servers' prompts, or send one", _prompts, "[NAME K=V …]"),
    "/resources": Command("list the tool servers' resources, for /attach", _resources),
    "/model": Command("show the model and others on offer, or switch to one", _model, "[NAME]"),
    "/retry": Command("get another answer to the last message", _retry),
    "/attach": Command("send a file or a resource with the next message", _attach, "PATH|URI"),
    "/detach": Command("remove attached files", _detach, "[NAME]"),
    "/copy": Command("copy the last answer, or its last code block", _copy, "[code]"),
    "/export": Command("write the conversation as Markdown", _export, "[FILE]"),
    "/reasoning": Command("show the model's reasoning before its last answer", _reasoning),
    "/verbose": Command("show or hide arguments, results and tokens", _verbose),
    "/exit": Command("exit", _exit),
}
ALIASES = {"/quit": "/exit", "/?": "/help"}


SHORT_RESULT = 500


def to_markdown(session: ChatSession, messages: Iterable[Message] | None = None) -> str:
    """A conversation as a page that people can read and send on. `messages` are those to show, if not all."""
    shown = session.transcript.messages if messages is None else messages
    head = f"# {session.title or session.agent_name}\n\n{session.agent_name}, {session.started_at:%Y-%m-%d %H:%M} UTC"
    return "\n\n".join([head, *filter(None, map(_section, shown))]) + "\n"


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


async def listed_prompts(libraries: Sequence["McpLibrary"]) -> list[tuple[str, str]]:
    """Returns name with arguments, and description, of every prompt."""
    return [(_signature(prompt), prompt.description or "") for _, prompt in await _all_prompts(libraries)]


async def listed_resources(libraries: Sequence["McpLibrary"]) -> list[tuple[str, str]]:
    found = await asyncio.gather(*(library.resources() for library in libraries))
    return [(each.uri, each.description or each.name) for resources in found for each in resources]


async def filled_prompt(libraries: Sequence["McpLibrary"], line: str) -> str:
    """Returns the text of `NAME argument=value …`. Raises HoloDeckError with a sentence."""
    try:
        name, *words = shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(f"The quotes in it do not match: {error}.") from error
    known = await _all_prompts(libraries)
    found = next(((library, prompt) for library, prompt in known if prompt.name == name), None)
    if found is None:
        near = suggestion(name, [prompt.name for _, prompt in known]) or "; /prompts lists them."
        raise InvalidRequest(f"There is no prompt {one_line(name, 60)}{near}")
    library, prompt = found
    arguments = dict(_pair(word) for word in words)
    wanted = [each.name for each in prompt.arguments or () if each.required and each.name not in arguments]
    if wanted:
        raise InvalidRequest(f"{_signature(prompt)} needs {', '.join(wanted)}: /prompts {prompt.name} {wanted[0]}=…")
    return await library.prompt(name, arguments)


async def read_resource(libraries: Sequence["McpLibrary"], uri: str) -> list[ServerDocument]:
    """Reads from the server that lists it, else from the first that knows it, since templates are not listed."""
    listing = await asyncio.gather(*(library.resources() for library in libraries))
    owners = [
        library
        for library, resources in zip(libraries, listing, strict=True)
        if any(each.uri == uri for each in resources)
    ]
    problem = f"No tool server has {one_line(uri, 200)}; /resources lists what they have."
    for library in owners or libraries:
        try:
            return await library.resource(uri)
        except ToolUnavailable as error:
            problem = error.message
    raise InvalidRequest(problem)


async def _all_prompts(libraries: Sequence["McpLibrary"]) -> list[tuple["McpLibrary", "ListedPrompt"]]:
    found = await asyncio.gather(*(library.prompts() for library in libraries))
    return [(library, prompt) for library, prompts in zip(libraries, found, strict=True) for prompt in prompts]


def _signature(prompt: "ListedPrompt") -> str:
    """Formats `review file= [focus=]`: brackets around optional arguments."""
    blanks = [f"{each.name}=" if each.required else f"[{each.name}=]" for each in prompt.arguments or ()]
    return " ".join([prompt.name, *blanks])


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise InvalidRequest(f"'{one_line(word, 60)}' is not ARGUMENT=VALUE; put values with spaces into quotes.")
    return name, value
