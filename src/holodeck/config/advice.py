"""What is allowed in an agent file but does not do what its author expects: a warning each."""

from collections.abc import Iterator

from holodeck.config.environment import Keys, YamlDocument, dotted
from holodeck.config.schema import AgentFile


def advice_on(agent: AgentFile, document: YamlDocument) -> list[str]:
    """Time limits that are written down but never reached, because the step that they are part of ends first."""
    limit = agent.loop_in_time.iteration_timeout
    return [
        f"{document.file}:{mark.line}:{mark.column}: {dotted(keys)}: {seconds:g} s are never reached: "
        f"loop.iteration_timeout ends the step after {limit:g} s"
        for keys, seconds in _timeouts(agent)
        if seconds > limit and (mark := document.marks.get(keys))
    ]


def _timeouts(agent: AgentFile) -> Iterator[tuple[Keys, float]]:
    yield ("model", "timeout"), agent.model.idle_seconds
    for number, choice in enumerate(agent.model.fallback):
        yield ("model", "fallback", number, "timeout"), choice.idle_seconds
    for number, tool in enumerate(agent.tools):
        yield ("tools", number, "timeout"), tool.timeout
