"""`holodeck chat`: a conversation in the terminal, or through a pipe. Reads the options and assembles the parts."""

import asyncio
import base64
import contextlib
import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from holodeck.cli.agent_choice import chosen, demo_option
from holodeck.cli.conversation.attachments import Attachments
from holodeck.cli.conversation.chat_context import ChatContext, ModelMenu, StartingAgent
from holodeck.cli.conversation.chat_loop import LEAVE_SECONDS, Display
from holodeck.cli.conversation.chat_store import ChatStore
from holodeck.cli.conversation.commands import COMMANDS, listed
from holodeck.cli.conversation.local_chat import Chat
from holodeck.cli.conversation.remote_chat import HELP as REMOTE_COMMANDS
from holodeck.cli.conversation.remote_chat import RemoteChat, RemoteContext
from holodeck.cli.conversation.remote_server import RemoteServer
from holodeck.cli.conversation.session import MAX_MESSAGES, NEW_ID, ChatConfig, ChatSession, SessionState, counted
from holodeck.cli.conversation.validation import InputChecks
from holodeck.cli.lines import Lines, OneMessage, PipedLines, TypedAnswers, silence, whole_input
from holodeck.cli.paint import Paint
from holodeck.cli.plain_display import JsonDisplay, PlainDisplay
from holodeck.config.build import build_middleware
from holodeck.config.environment import data_folder
from holodeck.config.load import LoadedConfig, with_model
from holodeck.core.events import Observer
from holodeck.core.ids import new_ulid
from holodeck.core.owner import ANONYMOUS
from holodeck.core.sizes import MB
from holodeck.core.text import one_line
from holodeck.runs.middleware import EventMiddleware
from holodeck.runs.run import Run
from holodeck.tools.function_files import load_function

ENDED = 128  # plus the signal's number, as shells count
KEY_VARIABLE = "HOLODECK_API_KEY"
MAX_PIPED = 32 * MB  # for a server, which has its own limit
LOCAL_ONLY = frozenset(
    {"demo", "model", "system", "user_id", "enable_observability", "max_messages", "resume", "list_chats", "save"}
)


@click.command("chat")
@click.argument("words", nargs=-1, metavar="[PATH] [QUESTION]")
@demo_option
@click.option("-p", "--prompt", metavar="QUESTION", help="Answer this message and exit; the same as the argument.")
@click.option("-a", "--attach", metavar="FILE", multiple=True, help="A file for the first message; may be repeated.")
@click.option("--lines", "each_line", is_flag=True, help="Send each line of the piped input as its own message.")
@click.option("--model", metavar="NAME", help="Use another model: a name, or provider/name.")
@click.option("--system", metavar="TEXT", help="Use another system prompt.")
@click.option("--user", "user_id", metavar="ID", default=ANONYMOUS, help="The user of the conversation.")
@click.option("-v", "--verbose", is_flag=True, help="Full arguments, results, reasoning and token counts.")
@click.option("-q", "--quiet", is_flag=True, help="Answers only.")
@click.option("-o", "--observability", "enable_observability", is_flag=True, help="Send OpenTelemetry traces.")
@click.option(
    "-m",
    "--max-messages",
    type=click.IntRange(2, 10_000),
    default=MAX_MESSAGES,
    show_default=True,
    help="How many messages to send to the model.",
)
@click.option("--resume", metavar="ID", help="Continue a saved chat: its id, `last`, or a file.")
@click.option("--session", "session_id", metavar="ID", help="Continue the conversation with this id, or start it.")
@click.option("--url", metavar="URL", help="Talk to the agent of a running server, e.g. http://127.0.0.1:8000.")
@click.option("--key-file", metavar="FILE", help="With --url: a file with the API key; default: HOLODECK_API_KEY.")
@click.option("--list", "list_chats", is_flag=True, help="List saved chats.")
@click.option("--no-save", "save", flag_value=False, default=True, help="Do not save this chat.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each event, for scripts.")
def command(
    *,
    words: tuple[str, ...],
    demo: bool,
    prompt: str | None,
    model: str | None,
    system: str | None,
    url: str | None,
    key_file: str | None,
    list_chats: bool,
    **given: Any,
) -> int:
    """Talk to an agent in the terminal.

    With a QUESTION, answer it and exit.

    PATH is an agent file or its folder; without it, agent.yaml of this folder. Ctrl+C stops a reply, Ctrl+D exits.

    \b
    holodeck chat                                a conversation
    holodeck chat "What is on my list?"          one answer
    cat report.txt | holodeck chat "Summarise"   one answer about the piped text
    holodeck chat --url http://127.0.0.1:8000    a conversation with the agent of a server
    """  # noqa: D301  click wants the real \b
    path, question = _path_and_question(words, prompt, demo=demo)
    if list_chats and url is None:
        click.echo("\n".join(asyncio.run(_listed(chosen(path, demo=demo), given["user_id"]))))
        return 0
    if given["each_line"] and question is not None:
        raise click.UsageError("--lines sends each line of the piped input; leave out the question")
    if given["session_id"] is not None and (given["resume"] is not None or not given["save"]):
        raise click.UsageError("--session always saves its conversation: leave out --resume and --no-save")
    try:
        asked = ChatConfig(question=question, **given)  # same names as its members
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if url is not None or key_file is not None:
        return asyncio.run(_until_signal(chat_with_server(_server(url, key_file, path), asked)))
    return asyncio.run(_until_signal(chat_here(_changed(chosen(path, demo=demo), model, system), asked)))


def _server(url: str | None, key_file: str | None, path: str | None) -> RemoteServer:
    """Returns the server to talk to. Raises UsageError for options that need a local agent."""
    if url is None:
        raise click.UsageError("--key-file is for --url")
    context = click.get_current_context()
    given = [
        option.opts[-1]
        for option in context.command.params
        if option.name in LOCAL_ONLY and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given == ["--resume"] and path is None:
        raise click.UsageError("with --url the server has the conversations: --session ID continues one")
    if path is not None or given:
        raise click.UsageError(f"with --url the server has its own agent: leave out {one_line(path or given[0])}")
    return RemoteServer(url, _key(key_file))


def _key(file: str | None) -> str | None:
    """Reads the API key from a file or the environment. An argument would be visible to other users of the machine."""
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.UsageError(f"{one_line(file)} cannot be read: {reason}") from error
    if not key or not key.isascii() or not key.isprintable():
        raise click.UsageError(f"{one_line(file)} must contain one key and nothing else")
    return key


def _path_and_question(words: tuple[str, ...], prompt: str | None, *, demo: bool) -> tuple[str | None, str | None]:
    """Splits path and question: an argument that neither is nor looks like a file is the question."""
    rest = list(words)
    path = rest.pop(0) if rest and not demo and (len(rest) > 1 or _looks_like_path(rest[0])) else None
    if demo and len(rest) > 1:
        raise click.UsageError("--demo runs the bundled agent; leave out the path, and put the question into quotes")
    if len(rest) > 1 or (rest and prompt is not None):
        raise click.UsageError("there is more than one question; put it into quotes")
    if rest and demo and _looks_like_path(rest[0]):
        raise click.UsageError("--demo runs the bundled agent; leave out the path")
    question = prompt if prompt is not None else next(iter(rest), None)
    if question is not None and not question.strip():
        raise click.UsageError("the question is empty")
    return path, question


def _looks_like_path(word: str) -> bool:
    is_name = not any(each.isspace() for each in word) and (
        word.endswith((".yaml", ".yml")) or word.startswith(("/", "./", "../", "~")) or word in {".", ".."}
    )
    try:
        return is_name or bool(word and Path(word).exists())
    except OSError:  # the word is too long for a file name
        return False


def _changed(config: LoadedConfig, model: str | None, system: str | None) -> LoadedConfig:
    if model is not None:
        config = with_model(config, model)
    if system is not None:
        config = replace(config, agent=config.agent.model_copy(update={"instructions": system}))
    return config


async def _listed(config: LoadedConfig, user_id: str) -> list[str]:
    store = ChatStore(config, user_id=user_id, keeps=False, complain=_complain)
    try:
        return listed(await store.entries(), store.agent_name)
    finally:
        await store.close()


async def chat_here(config: LoadedConfig, asked: ChatConfig) -> int:
    interactive, attachments, models = _is_interactive(asked), Attachments(config), ModelMenu(config)
    for name in asked.attach:
        attachments.add(name)
    commands = {name: each.help for name, each in COMMANDS.items()}
    limit = round(attachments.settings.max_file_mb * MB)
    lines, ready = await _lines(asked, commands, models.names, limit, attachments.take_input)
    keeps = asked.save and (interactive or asked.resume is not None or asked.session_id is not None)
    async with contextlib.AsyncExitStack() as at_end:
        store = ChatStore(config, user_id=asked.user_id, keeps=keeps, complain=_complain)
        at_end.push_async_callback(store.close)
        session = await _session(store, asked, config)
        starting = StartingAgent(config, max_messages=asked.max_messages, after=ready.wait)
        at_end.push_async_callback(starting.close)
        context = ChatContext(
            config=asked,
            session=session,
            starting=starting,
            models=models,
            store=store,
            attachments=attachments,
            clipboard=_to_clipboard,
            new_middleware=build_middleware(config) or EventMiddleware,
            **_around(asked),
        )
        return await _conversation(context, config, lines, interactive=interactive)


async def chat_with_server(server: RemoteServer, asked: ChatConfig) -> int:
    interactive, session_id = _is_interactive(asked), asked.session_id or new_ulid()
    is_named = asked.session_id is not None
    context = RemoteContext(
        server=server, session_id=session_id, is_named=is_named, quiet=asked.quiet, **_around(asked)
    )
    for name in asked.attach:
        context.attach(name)
    try:
        lines, _ = await _lines(asked, REMOTE_COMMANDS, _no_models, MAX_PIPED, context.take_input)
        with silence() if interactive else contextlib.nullcontext():
            return await RemoteChat(context, lines, interactive=interactive).go()
    finally:
        await server.close()


def _around(asked: ChatConfig) -> dict[str, Any]:
    paint, say = Paint.of(sys.stdout), partial(click.echo, err=True) if asked.as_json else _say
    return {"display": _display(asked, paint), "say": say, "complain": _complain, "paint": paint}


async def _no_models() -> list[str]:
    return []


async def _session(store: ChatStore, asked: ChatConfig, config: LoadedConfig) -> ChatSession:
    if asked.session_id is not None:
        return await store.begun(asked.session_id)
    return await store.find(asked.resume) if asked.resume else ChatSession(agent_name=config.agent.name)


def _is_interactive(asked: ChatConfig) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not asked.as_json and asked.question is None


async def _conversation(context: ChatContext, config: LoadedConfig, lines: Lines, *, interactive: bool) -> int:
    session, asked = context.session, context.config
    session.become(SessionState.ACTIVE)
    if session.agent_name != config.agent.name:
        _complain(f"! this chat was with {one_line(session.agent_name)}")
    if interactive and not asked.quiet:
        _greet(context, config)
    with silence() if interactive else contextlib.nullcontext(), _tracing(asked, config, session) as trace:
        own = [load_function(each.file, each.function, config.folder) for each in config.agent.chat.checks]
        chat = Chat(context, lines, interactive=interactive, checks=InputChecks().then(*own), trace=trace)
        try:
            return await chat.go()
        finally:
            await chat.close()
            context.session.become(SessionState.TERMINATED)


def _greet(shared: ChatContext, config: LoadedConfig) -> None:
    model = config.agent.model
    about = "/".join(filter(None, (model.provider, model.name)))
    shared.say(f"{shared.paint.bold(one_line(config.agent.name))} {shared.paint.dim(f'({one_line(about)}); /help')}")
    if shared.session.message_count:
        shared.say(shared.paint.dim(f"{counted(shared.session.message_count)}: {shared.session.title}"))
        shared.show_last_exchange()
    elif shared.config.session_id is not None:
        shared.say(shared.paint.dim(NEW_ID))


async def _lines(
    asked: ChatConfig,
    commands: Mapping[str, str],
    models: Callable[[], Awaitable[Sequence[str]]],
    limit: int,
    take_input: Callable[[bytes], None],
) -> tuple[Lines, asyncio.Event]:
    """Returns the source of messages, and when the agent may start. `take_input` gets text piped with a question."""
    if _is_interactive(asked):
        from holodeck.cli.terminal.keyboard import Keyboard  # noqa: PLC0415  prompt-toolkit: scripts do without it

        keyboard = Keyboard(data_folder(os.environ) / "history", commands, models, keeps=asked.save)
        return keyboard, keyboard.ready
    at_once = asyncio.Event()
    at_once.set()
    if asked.each_line:
        return PipedLines(), at_once
    if sys.stdin.isatty():
        return OneMessage(asked.question, TypedAnswers()), at_once
    data = await whole_input(limit=limit)
    if asked.question is None:
        return OneMessage(data.decode("utf-8", "surrogateescape").strip("\n") or None), at_once
    take_input(data)
    return OneMessage(asked.question), at_once


def _display(asked: ChatConfig, paint: Paint) -> Display:
    if asked.as_json:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 in every locale
        return JsonDisplay(sys.stdout)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from holodeck.cli.terminal.screen import Screen  # noqa: PLC0415  rich: lines in a pipe do without it

        return Screen(sys.stdout, colours=paint.enabled, verbose=asked.verbose, quiet=asked.quiet)
    err = None if sys.stdout.isatty() else sys.stderr
    return PlainDisplay(sys.stdout, paint, verbose=asked.verbose, quiet=asked.quiet, err=err)


def _say(text: str) -> None:
    click.echo(_fitting(text))


def _fitting(text: str) -> str:
    if not sys.stdout.isatty():
        return text
    from holodeck.cli.terminal.markdown_lines import wrapped  # noqa: PLC0415
    from holodeck.cli.terminal.screen import terminal_size  # noqa: PLC0415  rich, as above

    return wrapped(text, terminal_size(sys.stdout).columns - 1)


def _to_clipboard(text: str) -> None:
    """Copies with OSC 52: the terminal puts the text on the clipboard of the user's own machine."""
    sys.stdout.write(f"\x1b]52;c;{base64.b64encode(text.encode('utf-8', 'replace')).decode()}\x07")
    sys.stdout.flush()


def _complain(text: str) -> None:
    """Prints a complaint: on the screen as part of the conversation, in a pipe apart from the answers."""
    aside = not sys.stdout.isatty()
    click.echo(Paint.of(sys.stderr if aside else sys.stdout).yellow(_fitting(text)), err=aside)


@contextlib.contextmanager
def _tracing(
    asked: ChatConfig, config: LoadedConfig, session: ChatSession
) -> Iterator[Callable[[Run], Observer] | None]:
    """Opens tracing. OpenTelemetry is imported only if it is configured."""
    settings = config.agent.observability
    if not (asked.enable_observability or settings.enabled):
        yield None
        return
    otlp = import_module("holodeck.telemetry.otlp")
    exporting = otlp.Exporting(settings, agent=config.agent.name, environment=config.environment)
    tracing = exporting.tracing
    try:
        with tracing.chat(session.session_id) as span:
            yield lambda run: tracing.run(
                run_id=run.run_id, session_id=run.session_id, kept=lambda: run.log.kept, parent=span
            )
    finally:
        lost = exporting.close()
        if lost:
            _complain(f"! {lost} spans could not be sent to {exporting.endpoint}")


async def _until_signal(chat: Awaitable[int]) -> int:
    """Returns the exit code of a conversation.

    SIGTERM and SIGHUP end it as leaving does: the terminal is restored, tools are stopped, the chat is saved.
    """
    loop, task, ended = asyncio.get_running_loop(), asyncio.current_task(), list[int]()

    def end(number: int) -> None:
        ended.append(number)
        if task is not None:
            task.cancel()
        loop.call_later(2 * LEAVE_SECONDS, os._exit, ENDED + number)  # even if a tool does not stop

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    try:
        return await chat
    except asyncio.CancelledError:
        if not ended:
            raise
        return ENDED + ended[0]
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
