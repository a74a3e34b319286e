"""Messages about names of toolsets and about unknown tools: one wording for all toolsets."""

from collections.abc import Iterable
from difflib import get_close_matches

from holodeck.core.tools import ToolResult
from holodeck.tools.port import Toolset

_LONGEST = 100  # characters of a name that are shown, by `repr`, which makes invisible ones visible
_SHOWN = 20
_LISTED = 6  # names in a sentence for a person
_NEAR = 0.75  # a typo; with a lower cutoff, delete_todo would suggest list_todos


def label_of(toolset: Toolset) -> str:
    return ", ".join(state.name for state in toolset.health()) or "the toolset"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence for a near miss: `; did you mean …?`, else nothing."""
    near = get_close_matches(name, list(known), n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def tools_of(known: Iterable[str]) -> str:
    """The end of a sentence about a name that is near to none: the tools that there are."""
    names = sorted(known)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"; it has {', '.join(names[:_LISTED])}{more}" if names else "; it has no tools"


def unknown_tool(name: str, known: Iterable[str]) -> ToolResult:
    """The answer to a call of a tool that is not offered (A27)."""
    names = sorted(known)
    more = ", …" if len(names) > _SHOWN else ""
    offered = f"the tools are {', '.join(names[:_SHOWN])}{more}" if names else "there are no tools"
    return ToolResult.failure(f"There is no tool {name[:_LONGEST]!r}{suggestion(name, names) or f'; {offered}'}")
