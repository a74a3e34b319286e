"""Shows runs on a real terminal: growing Markdown, one live line for each tool call, notes.

One `Screen` serves a whole conversation. All text of models and tools passes the sanitiser before it is
rendered. The screen is painted at most 20 times a second, and less often when rendering is slow. This module knows no
keyboard and no prompt; `holodeck.cli.plain_display` shows the same where there is no terminal.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import IO, Any

from rich.cells import cell_len
from rich.text import Text

from holodeck.cli.plain_display import SHORT_RESULT, SafeStream, call_text, progress_text, unshown, usage_text
from holodeck.cli.terminal import markdown_lines as md
from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.text import one_line, shorten, terminal_safe

_ERASE_BELOW = "\x1b[J"


class Painter:
    """The last lines of a terminal, repainted in place. Unchanged lines are not written again.

    Text above them belongs to the terminal's own scrollback and is never touched. No alternate screen, no hidden cursor,
    no mode that a crash would leave behind: the only sequences are "up", "erase below" and colours. Lines must fit the
    width.
    """

    def __init__(self, out: IO[str], height: Callable[[], int]) -> None:
        self._out = out
        self._height = height
        self._painted: list[str] = []  # the cursor is at the end of the last one
        self._scrolled = 0  # lines of the picture that scrolled off the screen and can no longer change

    def show(self, lines: Sequence[str]) -> None:
        self._scroll()  # the window may have become shorter
        fresh = list(lines[self._scrolled :])
        if fresh == self._painted:
            return
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(fresh, self._painted, strict=False)))
        same = min(same, max(len(fresh) - 1, 0))  # the cursor has to end after a line
        self._write(self._change(fresh, same))
        self._painted = fresh
        self._scroll()

    def keep(self, lines: Sequence[str]) -> None:
        """Prints these lines permanently. The next output comes below them."""
        self.show(lines)
        self.settle(len(lines))

    def settle(self, number: int) -> None:
        """Removes the first lines from the picture. They stay on the screen as they are."""
        on_screen = number - self._scrolled
        self._scrolled = max(-on_screen, 0)
        settled = self._painted[: max(on_screen, 0)]
        del self._painted[: len(settled)]
        if settled and not self._painted:
            self._write("\n")

    def start_over(self, *, over_last: bool) -> None:
        """Starts over after the width changed. The old lines stay, since their rows are not known; the last may be replaced.

        Some terminals break lines that have become too long for their width, others cut them. The last line can be
        replaced only if neither happened to it. Otherwise the next output comes below it.
        """
        if self._painted:
            self._write(f"\r{_ERASE_BELOW}" if over_last else "\n")
        self._painted, self._scrolled = [], 0

    def _change(self, fresh: list[str], same: int) -> str:
        before = self._painted
        if not before:
            return "\n".join(fresh)
        if same == len(before):
            return "\n" + "\n".join(fresh[same:])
        if same == len(before) - 1 and same < len(fresh) and fresh[same].startswith(before[same]):
            return fresh[same][len(before[same]) :] + "".join(f"\n{line}" for line in fresh[same + 1 :])
        up = len(before) - 1 - same
        climb = f"\x1b[{up}A" if up else ""
        return f"\r{climb}{_ERASE_BELOW}" + "\n".join(fresh[same:])

    def _scroll(self) -> None:
        over = len(self._painted) - max(self._height() - 1, 1)
        if over > 0:
            self._scrolled += over
            del self._painted[:over]

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURN = 0.1
FRAME = 0.05
SLOW = 4  # the next picture waits at least this many times as long as the last one took
SHORT_ERROR = 300
PROGRESS, RESTART = "tool_progress", "tool_server"  # kinds of activities
UNKNOWN_SIZE = os.terminal_size((80, 24))


@dataclass
class _ShownCall:
    name: str
    started: float
    arguments: str = ""


@dataclass
class _Flow:
    source: md.GrowingMarkdown
    render: md.Render
    begun: bool = False  # part of it is already on the screen permanently


class Screen(e.Observer):
    def __init__(
        self,
        out: IO[str],
        *,
        colours: bool = True,
        verbose: bool = False,
        quiet: bool = False,
        size: Callable[[], os.terminal_size] | None = None,
    ) -> None:
        self._size = size or (lambda: terminal_size(out))
        self.verbose = verbose
        self.quiet = quiet
        self._renderer = md.Renderer(colours=colours)
        self._painter = Painter(out, lambda: self._size().lines)
        self._safe = SafeStream()
        self._flow: _Flow | None = None
        self._calls: dict[str, _ShownCall] = {}
        self._waiting: tuple[str, float] | None = None  # the reason, and since when
        self._progress: dict[str, dict[str, Any]] = {}  # activities of tools that report progress
        self._warned: list[str] = []  # warnings of this run that are on the screen
        self._gap = False  # the next text gets a blank line above it
        self._width = self._columns()
        self._picture: list[str] = []  # the open block, as it was painted last
        self._seen = ""  # the part of that block that was shown at another width
        self._timer: asyncio.TimerHandle | None = None
        self._slowness = 0.0

    # called by the chat

    def wait_for(self, what: str) -> None:
        """Shows activity before a run emits its first event."""
        self._waiting = (what, time.monotonic())
        self._soon()

    def emit(self, event: e.Event) -> None:
        self(event)

    def close(self) -> None:
        """Keeps the lines that are shown and stops repainting. Can be reused for the next run."""
        self._end_flow()
        self._waiting = None
        self._calls.clear()
        self._progress.clear()
        self._paint()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._gap = False

    # events

    def step_started(self, _event: e.StepStarted) -> None:
        self.wait_for("thinking")

    def text_added(self, event: e.TextAdded) -> None:
        self._write(self._safe.feed(event.delta), lambda: _Flow(md.GrowingMarkdown(), md.ReplyMarkdown))

    def text_ended(self, _event: e.TextEnded) -> None:
        self._write(self._safe.flush(), lambda: _Flow(md.GrowingMarkdown(), md.ReplyMarkdown))
        self._end_flow()

    def reasoning_added(self, event: e.ReasoningAdded) -> None:
        if self.verbose:
            self._write(self._safe.feed(event.delta), lambda: _Flow(md.GrowingText(), md.dim))

    def reasoning_ended(self, _event: e.ReasoningEnded) -> None:
        if self.verbose:
            self._write(self._safe.flush(), lambda: _Flow(md.GrowingText(), md.dim))
            self._end_flow()
        elif self._waiting is not None and not self.quiet:
            self._note(f"✻ thought for {time.monotonic() - self._waiting[1]:.1f} s (/reasoning)", "dim")
        self.wait_for("answering")

    def tool_call_started(self, event: e.ToolCallStarted) -> None:
        self._waiting = None
        self._calls[event.call_id] = _ShownCall(event.name, time.monotonic())
        self._soon()

    def tool_call_ended(self, event: e.ToolCallEnded) -> None:
        call = self._calls.setdefault(event.call_id, _ShownCall(event.name, time.monotonic()))
        call.arguments, call.started = event.arguments, time.monotonic()
        self._soon()

    def activity_shown(self, event: e.ActivityShown) -> None:
        if event.kind == PROGRESS:
            self._progress[event.message_id] = dict(event.content)
        elif event.kind == RESTART and not self.quiet:
            self._note(f"! {one_line(str(event.content.get('server', '')))} is restarting; its call waits", "yellow")
        self._soon()

    def activity_patched(self, event: e.ActivityPatched) -> None:
        if event.message_id in self._progress:
            changes = {str(each.get("path", ""))[1:]: each.get("value") for each in event.patch}
            self._progress[event.message_id] |= changes
            self._soon()

    def _progress_of(self, tool: str) -> str:
        found = [content for content in self._progress.values() if content.get("tool") == tool]
        return f" · {progress_text(found[-1])}" if found else ""

    def tool_finished(self, event: e.ToolFinished) -> None:
        call = self._calls.pop(event.call_id, _ShownCall(event.name, time.monotonic()))
        if not any(other.name == event.name for other in self._calls.values()):
            self._progress = {id_: each for id_, each in self._progress.items() if each.get("tool") != event.name}
        if self.quiet:
            return
        mark = ("✗ ", "red") if event.failed else ("✓ ", "green")
        asked = call_text(event.name, call.arguments, short=True) if call.arguments else one_line(event.name)
        self._keep([self._row(mark, asked, f"{event.seconds:.2f} s")])
        self._details(call, event)

    def _details(self, call: _ShownCall, event: e.ToolFinished) -> None:
        text = terminal_safe(text_of(event.content)).strip()
        if self.verbose:
            self._indented(_pretty(call.arguments) if call.arguments else "")
            self._indented(shorten(text, SHORT_RESULT))
        elif event.failed:
            self._indented(one_line(text, SHORT_ERROR))

    def run_started(self, _event: e.RunStarted) -> None:
        self._warned.clear()

    def warning_raised(self, event: e.WarningRaised) -> None:
        self._warned.append(event.message)
        self._note(f"! {one_line(event.message, SHORT_ERROR)}", "yellow")

    def step_finished(self, event: e.StepFinished) -> None:
        self._waiting = None
        if self.verbose and event.usage:
            self._note(usage_text(event.usage), "dim")

    def run_finished(self, event: e.RunFinished) -> None:
        self.close()
        if event.outcome is e.Outcome.CANCELLED:
            self._note("(stopped)", "dim")
        if warning := unshown(event.warning, self._warned):
            self._note(f"! {one_line(warning, SHORT_ERROR)}", "yellow")

    def run_failed(self, event: e.RunFailed) -> None:
        self.close()
        message = one_line(event.message, SHORT_ERROR)
        shown = f"{message.rstrip('.')}; /retry asks again." if event.retryable else message
        self._note(f"✗ {shown}", "red")

    # lines that stay

    def _note(self, text: str, style: str) -> None:
        self._end_flow()
        self._keep(self._renderer.lines(Text(text, style=style), self._columns()))

    def _indented(self, text: str) -> None:
        inner = self._renderer.lines(md.dim(text), self._columns() - 2) if text else []
        self._keep([f"  {line}" for line in inner])

    def _keep(self, lines: list[str]) -> None:
        if lines:
            self._painter.keep(lines)
            self._gap = True
        self._paint()

    # text that grows

    def _write(self, text: str, begin: Callable[[], _Flow]) -> None:
        if not text:
            return
        self._waiting = None
        if self._flow is None:
            self._flow = begin()
            self._flow.begun = self._gap
        self._flow.source.add(text)
        self._soon()

    def _end_flow(self) -> None:
        flow, self._flow = self._flow, None
        if flow is not None:
            self._painter.keep(self._blocks(flow, flow.source.rest()))
            self._picture, self._gap = [], True

    def _blocks(self, flow: _Flow, source: str) -> list[str]:
        if not source.strip():
            return []
        lines = self._of(flow, source, is_finished=True)
        flow.begun, self._seen = True, ""
        return lines

    def _of(self, flow: _Flow, source: str, *, is_finished: bool = False) -> list[str]:
        """Returns the lines of a part of the flow. A blank line separates it from the text above."""
        markdown = flow.render is md.ReplyMarkdown
        lines: list[str] = []
        for part in md.blocks(source) if markdown else [source]:
            what = md.ReplyMarkdown(part, is_finished=is_finished) if markdown else flow.render(part)
            rendered = self._renderer.lines(what, self._columns()) if part.strip() else []
            lines += ["", *rendered] if rendered and markdown and (lines or flow.begun) else rendered
        return md.unseen(lines, self._seen) if self._seen else lines

    # painting

    def _soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(FRAME, SLOW * self._slowness), self._tick)

    def _tick(self) -> None:
        self._timer = None
        begun = time.monotonic()
        self._paint()
        self._slowness = time.monotonic() - begun
        if self._calls or self._waiting:
            self._soon()  # the spinner turns

    def _paint(self) -> None:
        self._notice_width()
        if self._flow is not None:
            done = self._blocks(self._flow, self._flow.source.finished())
            self._picture = self._of(self._flow, self._flow.source.open)
            self._painter.show([*done, *self._picture])
            self._painter.settle(len(done))
        else:
            self._painter.show(self._live_rows())

    def _notice_width(self) -> None:
        width = self._columns()
        if width != self._width and self._flow is not None:
            fits = not self._picture or cell_len(md.plain(self._picture[-1])) <= width
            self._painter.start_over(over_last=fits)
            self._seen += md.visible(self._picture[:-1] if fits else self._picture)
            self._picture = []
        self._width = width

    def _live_rows(self) -> list[str]:
        if self.quiet:
            return []
        turn = (SPINNER[int(time.monotonic() / TURN) % len(SPINNER)] + " ", "cyan")
        rows = []
        for call in self._calls.values():
            shown = call_text(call.name, call.arguments, short=True) + self._progress_of(call.name)
            rows.append(self._row(turn, shown, _so_far(call.started)))
        if self._waiting is not None:
            what, since = self._waiting
            rows.append(self._row(turn, f"{what}…", _so_far(since)))
        return rows

    def _row(self, mark: tuple[str, str], what: str, duration: str) -> str:
        """Formats one line. The middle part is cut to fit."""
        end = f" {duration}" if duration else ""
        text = Text(what)
        text.truncate(max(self._columns() - len(mark[0]) - len(end), 1), overflow="ellipsis")
        return "".join(self._renderer.lines(Text.assemble(mark, text, (end, "dim")), self._columns())[:1])

    def _columns(self) -> int:
        """One less than the width: terminals differ in what they do after the last column."""
        return self._size().columns - 1


def terminal_size(out: IO[str]) -> os.terminal_size:
    """Returns the current size. COLUMNS would be the size when the shell started."""
    try:
        size = os.get_terminal_size(out.fileno())
    except OSError:  # not a terminal
        return UNKNOWN_SIZE
    return size if size.columns else UNKNOWN_SIZE


def _so_far(since: float) -> str:
    """Formats the elapsed whole seconds; empty below 1. Fractions would change constantly and distract."""
    seconds = int(time.monotonic() - since)
    return f"{seconds} s" if seconds else ""


def _pretty(arguments: str) -> str:
    """Formats arguments in full, over as many lines as they need. Text that is not JSON stays unchanged."""
    try:
        text = json.dumps(json.loads(arguments or "{}"), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = arguments
    return shorten(terminal_safe(text), SHORT_RESULT)
