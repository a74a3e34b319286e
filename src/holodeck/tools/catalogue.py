"""All tools of an agent as one table, rebuilt when a toolset lists other tools than before.

A row holds everything that is known about a tool: its schema as the model sees it, the rules of the agent file (chosen,
prefixed, approval, bound arguments) and its circuit breakers. So offering tools means reading a dict, and a call is
check, bind, admit, toolset.

A tool's name belongs to the toolset that had it first, for as long as the agent runs: a server cannot take over
another's tool by adding one of the same name later, not even while the other restarts (T26).

A tool whose breaker is open is withdrawn: the model is not offered it, so that it does not try it in a loop.
`ToolResult.retryable` marks a failure: the tool could not be reached, broke off or did not answer in time. A tool that
answers with an error works.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from holodeck.core.tools import TOOL_NAME, Approval, ToolResult, ToolSchema
from holodeck.errors import HoloDeckError, StartError
from holodeck.resilience.breaker import Admission, CircuitBreaker, CircuitBreakerConfig, Phase
from holodeck.resilience.breakers import Breakers, Dependency
from holodeck.tools.arguments import BoundArguments, check_templates, declared_arguments, hide
from holodeck.tools.names import label_of, suggestion, unknown_tool
from holodeck.tools.port import ToolCaller, ToolContext, Toolset, ToolsetHealth
from holodeck.tools.result_cache import ResultCache, ToolCache
from holodeck.tools.rules import ToolRules

if TYPE_CHECKING:
    from holodeck.tools.mcp_library import McpLibrary

logger = logging.getLogger(__name__)

MAX_TOOLS = 128  # T18


class ToolBreakers:
    """The breakers of one tool. `make` creates its own at the first call: tools that are never called have none."""

    def __init__(self, server: CircuitBreaker, make: Callable[[], CircuitBreaker]) -> None:
        self.server = server
        self._make = make
        self.tool: CircuitBreaker | None = None

    @property
    def open(self) -> bool:
        if self.server.closed and (self.tool is None or self.tool.closed):
            return False  # plain attributes, because this runs before every call
        return self.server.phase is Phase.OPEN or (self.tool is not None and self.tool.phase is Phase.OPEN)

    @property
    def retry_after(self) -> float:
        own = self.tool.retry_after if self.tool is not None else 0.0
        return max(own, self.server.retry_after)

    def admit(self) -> "CallAdmission | None":
        """Admits one call. None if either breaker refuses it."""
        tool = self.tool
        if tool is None:
            tool = self.tool = self._make()
        on_trial = not tool.closed
        of_tool = tool.admit()
        if of_tool is None:
            return None
        of_server = self.server.admit()
        if of_server is None:
            of_tool.withdrawn()
            return None
        return CallAdmission(of_tool, of_server, on_trial)


@dataclass(slots=True, eq=False)
class CallAdmission:
    """One admitted call. `settle` reports its outcome to both breakers."""

    _tool: Admission
    _server: Admission
    _on_trial: bool

    def settle(self, result: ToolResult | None) -> None:
        """Reports the outcome. None means that the call was cancelled before its outcome was known."""
        if result is None:
            self._tool.withdrawn()
            self._server.withdrawn()
        elif not (result.failed and result.retryable):
            self._tool.succeeded()
            self._server.succeeded()
        else:
            self._tool.failed(result.text)
            if self._on_trial:  # the tool was known to fail: another failure proves nothing about the server
                self._server.withdrawn()
            else:
                self._server.failed(result.text)


@dataclass(kw_only=True, eq=False)
class Source:
    """A toolset in the catalogue, and the agent file's rules for its tools.

    With `breaker`, calls go through circuit breakers: one for the toolset under `name`, one for each of its tools.
    """

    toolset: Toolset
    name: str = ""
    rules: ToolRules = field(default_factory=ToolRules)
    breaker: CircuitBreakerConfig | None = None
    names_checked: bool = False  # the names in the rules were checked, or need no check

    def __post_init__(self) -> None:
        check_templates(self.rules.bind)
        self.listing: Sequence[ToolSchema] | None = None  # the listing from which the rows were made
        self.breakers: dict[str, ToolBreakers] = {}
        self.guarded = False  # a name in the rules matches no tool, so every tool needs approval
        self.reported = False  # whether the unmatched names were reported

    @property
    def label(self) -> str:
        return self.name or label_of(self.toolset)

    def ready(self) -> bool:
        return all(state.ready for state in self.toolset.health())

    def problems(self, sources: Sequence["Source"]) -> list[str]:
        """Names in the rules that match no tool, once the toolsets have listed theirs. Each is reported once.

        Sources that share one rules object are checked together: a name must match a tool of one of them. As long as a
        name matches none, all of them are `guarded`, since the rule may be meant for any tool. They are also guarded while
        one of them has not listed its tools yet, since the name may belong to it.
        """
        if self.names_checked:
            return []
        together = [source for source in sources if source.rules is self.rules]
        all_known = all(source.ready() or source.toolset.schemas() for source in together)
        found = self._misfits(together)
        reported = self.reported
        for source in together:
            source.guarded, source.names_checked = bool(found), all_known and not found
            source.reported = source.reported or all_known
        return found if all_known and not reported else []

    def _misfits(self, together: Sequence["Source"]) -> list[str]:
        listing = [schema for source in together for schema in source.toolset.schemas()]
        taken = {name for schema in listing for name in declared_arguments(schema.parameters)}
        idle = [name for name in self.rules.bind if name not in taken]
        return [
            *self.rules.misnamed(self.label, [schema.name for schema in listing]),
            *(
                f"cache.{name}: a tool that needs approval has no cache"
                for name in self.rules.cached_though_approved(listing)
            ),
            *(f"bind.{name}: no tool of {self.label} takes '{name}'{suggestion(name, taken)}" for name in idle),
        ]


@dataclass(frozen=True, kw_only=True)
class ToolEntry:
    """One row: a tool as the model sees it, and how to call it.

    `name` is the toolset's own name for it, `label` names the toolset.
    """

    schema: ToolSchema
    toolset: ToolCaller
    name: str
    label: str = "holodeck"
    bound: BoundArguments | None = None
    breakers: ToolBreakers | None = None
    cache: ToolCache | None = None

    @property
    def withdrawn(self) -> bool:
        """Whether the tool keeps failing, so that it is not offered at the moment."""
        return self.breakers is not None and self.breakers.open

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Makes one call whose arguments fit the schema."""
        if self.bound is not None:
            arguments = self.bound.fill(arguments, context)
        key = self.cache.key(arguments, context) if self.cache is not None else None
        if self.cache is None or key is None:
            return await self._call(arguments, context)
        kept = self.cache.results.get(key)
        if kept is not None:
            return kept
        whole = True

        def shorten(text: str, limit: int) -> str:
            nonlocal whole
            shortened = context.shorten(text, limit)
            whole = whole and shortened == text  # only this run keeps the part that was cut off
            return shortened

        result = await self._call(arguments, msgspec.structs.replace(context, shorten=shorten))
        if whole and not result.failed:
            self.cache.results.put(key, result, self.cache.rule.seconds)
        return result

    async def _call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if self.breakers is None:
            return await self.toolset.call(self.name, arguments, context)
        admission = self.breakers.admit()
        if admission is None:
            return self.unavailable()
        result = None
        try:
            result = await self.toolset.call(self.name, arguments, context)
        finally:
            admission.settle(result)
        return result

    def unavailable(self) -> ToolResult:
        seconds = self.breakers.retry_after if self.breakers is not None else 0.0
        again = f" It is tried again in {seconds:.0f} s." if seconds >= 1 else ""
        return ToolResult.failure(
            f"{self.schema.name} is not available at the moment: it has failed several times in a row.{again} "
            "Do not call it again now; continue without it, or tell the user to try later."
        )


def entry_of(toolset: ToolCaller, schema: ToolSchema) -> ToolEntry:
    return ToolEntry(schema=schema, toolset=toolset, name=schema.name)


class Catalogue:
    """The tools of an agent. A Toolset itself."""

    def __init__(self, sources: Sequence[Source] = (), breakers: Breakers | None = None) -> None:
        self._sources = tuple(sources)
        self._breakers = breakers or Breakers()
        self._results = ResultCache()
        self._rows: dict[str, ToolEntry] = {}
        self._listed: Mapping[str, ToolEntry] = {}
        self._schemas: Sequence[ToolSchema] = ()
        self._owners: dict[str, Source] = {}
        self._hidden: set[tuple[str, int]] = set()  # already logged
        self._noted: set[Source] = set()  # guarded, and already logged
        self._servers = {  # strong references: the registry of breakers holds weak ones
            source: self._breakers.of(Dependency.MCP, source.name, source.breaker)
            for source in self._sources
            if source.breaker is not None
        }

    @classmethod
    def of(cls, *toolsets: Toolset) -> "Catalogue":
        return cls([Source(toolset=toolset) for toolset in toolsets])

    # the port

    async def start(self) -> None:
        """Starts all toolsets at the same time. If one cannot start, closes the others again."""
        starts = [asyncio.create_task(source.toolset.start()) for source in self._sources]
        try:
            if self._sources:  # the first call needs it, and its import would block other streams
                await asyncio.gather(*starts, asyncio.to_thread(import_module, "holodeck.tools.schema_check"))
            if problems := self._take_names():
                raise StartError("; ".join(problems))  # noqa: TRY301  closed like any other start that failed
        except BaseException:
            await _cancel(starts)
            await self.close()
            raise

    @property
    def libraries(self) -> "list[McpLibrary]":
        """Prompts and resources of the servers among the toolsets."""
        found = (getattr(source.toolset, "library", None) for source in self._sources)
        return [library for library in found if library is not None]

    async def start_each(self) -> list[str]:
        """Starts all toolsets and waits for each. Returns the problems as sentences.

        The other toolsets stay started.
        """
        starts = [asyncio.create_task(source.toolset.start()) for source in self._sources]
        try:
            outcomes = await asyncio.gather(*starts, return_exceptions=True)
        except BaseException:
            await _cancel(starts)
            raise
        problems = []
        for outcome in outcomes:
            if isinstance(outcome, HoloDeckError):
                problems.append(outcome.message)
            elif outcome is not None:
                raise outcome
        return [*problems, *self._take_names()]

    def approval_in_file(self, name: str) -> Approval:
        """The rule that the agent file has for an offered tool, even while a wrong name makes all tools need approval."""
        source, entry = self._owners[name], self._rows[name]
        return next(source.rules.approval_of(schema) for schema in source.listing or () if schema.name == entry.name)

    def without_tools(self) -> list[str]:
        """The toolsets that have tools while the rules leave none of them."""
        return [
            source.label
            for source in self._sources
            if source.listing and not any(source.rules.offers(schema.name) for schema in source.listing)
        ]

    async def close(self) -> None:
        outcomes = await asyncio.gather(*(source.toolset.close() for source in self._sources), return_exceptions=True)
        for source, outcome in zip(self._sources, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                logger.error("%s could not be closed", source.label, exc_info=outcome)

    def schemas(self) -> Sequence[ToolSchema]:
        """The schemas, as the same object until they change."""
        offered = self.offered()
        if offered is not self._listed:
            self._listed, self._schemas = offered, tuple(entry.schema for entry in offered.values())
        return self._schemas

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        entry = self.rows().get(name)
        if entry is None:
            return unknown_tool(name, self._rows)
        return await entry.call(arguments, context)

    def health(self) -> Sequence[ToolsetHealth]:
        withdrawn = self.withdrawn()
        return [state for source in self._sources for state in self._health_of(source, withdrawn)]

    def _health_of(self, source: Source, withdrawn: Mapping[str, ToolEntry]) -> Sequence[ToolsetHealth]:
        states = source.toolset.health()
        server = self._servers.get(source)
        if server is None or not withdrawn:
            return states
        if server.phase is Phase.OPEN:
            detail = f"failed too often, tried again in {server.retry_after:.0f} s"
            states = [replace(state, ready=False, detail=detail) for state in states]
        names = tuple(name for name, entry in withdrawn.items() if entry.toolset is source.toolset)
        return [replace(state, withdrawn=names) for state in states]

    # the table

    def offered(self, withdrawn: Mapping[str, ToolEntry] | None = None) -> Mapping[str, ToolEntry]:
        """The tools that may be called now, by the name that the model sees.

        `withdrawn` is the result of `withdrawn()`, if the caller has it already.
        """
        if withdrawn is None:
            withdrawn = self.withdrawn()
        if not withdrawn:
            return self._rows
        return {name: entry for name, entry in self._rows.items() if name not in withdrawn}

    def withdrawn(self) -> Mapping[str, ToolEntry]:
        found: dict[str, ToolEntry] = {}
        for name, entry in self.rows().items():
            breakers = entry.breakers
            if breakers is None or (breakers.server.closed and (breakers.tool is None or breakers.tool.closed)):
                continue  # plain attributes, because this runs for every tool before every model call
            if breakers.open:
                found[name] = entry
        return found

    def rows(self) -> Mapping[str, ToolEntry]:
        for source in self._sources:
            if source.toolset.schemas() is not source.listing:
                self._fold()
                break
        return self._rows

    def names(self) -> Collection[str]:
        """The names that belong to the agent's tools, even while a tool is withdrawn or its server restarts."""
        self.rows()  # takes the names of tools that are new
        return self._owners.keys()

    def _fold(self) -> None:
        rows: dict[str, ToolEntry] = {}
        for source in self._sources:
            if problems := source.problems(self._sources):  # problems of a server that was not available at the start
                logger.error(
                    "tools_guarded: %s; until the names in the agent file match, every tool of %s needs approval",
                    "; ".join(problems),
                    source.label,
                )
            self._note_guard(source)
            for entry in self._entries_of(source):
                name = entry.schema.name
                if name not in self._owners and len(self._owners) < MAX_TOOLS and TOOL_NAME.fullmatch(name):
                    self._owners[name] = source
                if self._owners.get(name) is source:
                    rows[name] = entry
                else:
                    self._hide(name, source)
        self._rows = rows

    def _note_guard(self, source: Source) -> None:
        """Logs once why tools need approval although the agent file does not name them."""
        if source.guarded and not source.reported and source.toolset.schemas() and source not in self._noted:
            self._noted.add(source)
            logger.warning(
                "tools_guarded: every tool of %s needs approval until the other toolsets with the same rules have "
                "listed theirs: a name in the rules fits none of those that are known",
                source.label,
            )

    def _entries_of(self, source: Source) -> Iterator[ToolEntry]:
        source.listing = source.toolset.schemas()
        names = {schema.name for schema in source.listing}
        if names:  # a restarting server lists nothing; its breakers stay
            source.breakers = {name: kept for name, kept in source.breakers.items() if name in names}
        for schema in source.listing:
            if source.rules.offers(schema.name):
                yield self._entry(source, schema)

    def _entry(self, source: Source, schema: ToolSchema) -> ToolEntry:
        rules = source.rules
        bound, shown = None, schema.parameters
        if rules.bind:
            bound = BoundArguments(rules.bind, declared_arguments(schema.parameters))
            shown = hide(schema.parameters, rules.bind)
        cached = None if source.guarded else rules.cache_of(schema)
        return ToolEntry(
            schema=msgspec.structs.replace(
                schema,
                name=rules.prefix + schema.name,
                parameters=shown,
                approval=Approval.ALWAYS if source.guarded else rules.approval_of(schema),
                repeatable=rules.is_repeatable(schema),
            ),
            toolset=source.toolset,
            name=schema.name,
            label=source.label,
            bound=bound,
            breakers=self._breakers_of(source, schema.name),
            cache=None if cached is None else ToolCache(self._results, (source.label, schema.name), cached),
        )

    def _breakers_of(self, source: Source, name: str) -> ToolBreakers | None:
        if source.breaker is None:
            return None
        if name not in source.breakers:
            make = partial(self._breakers.of, Dependency.TOOL, f"{source.name}.{name}", source.breaker)
            source.breakers[name] = ToolBreakers(self._servers[source], make)
        return source.breakers[name]

    # names

    def _take_names(self) -> list[str]:
        """Assigns every tool name to its source. Returns all mistakes together, as sentences."""
        problems = [problem for source in self._sources for problem in source.problems(self._sources)]
        owners: dict[str, Source] = {}
        for source in self._sources:
            for entry in self._entries_of(source):
                name = entry.schema.name
                if not TOOL_NAME.fullmatch(name):
                    problems.append(f"prefix: '{name}' of {source.label} is longer than 64 characters")
                other = owners.setdefault(name, source)
                if other is not source:
                    both = f"{other.label} and {source.label}"
                    problems.append(
                        f"{both} both have a tool '{name}'; give one of them a prefix, or exclude it in one"
                    )
        if len(owners) > MAX_TOOLS:
            problems.append(f"there are {len(owners)} tools, at most {MAX_TOOLS} can be offered; choose with include")
        self._owners = dict(islice(owners.items(), MAX_TOOLS))
        self._fold()
        return problems

    def _hide(self, name: str, source: Source) -> None:
        if (name, id(source)) in self._hidden:
            return
        self._hidden.add((name, id(source)))
        owner = self._owners.get(name)
        why = f"there are {MAX_TOOLS} already"
        if owner is not None:
            why = f"{owner.label} has one of that name"
        elif not TOOL_NAME.fullmatch(name):
            why = "its name with the prefix is longer than 64 characters"
        logger.warning("tool_hidden: %s of %s is not offered: %s", name, source.label, why)


async def _cancel(starts: Sequence[asyncio.Task[None]]) -> None:
    for task in starts:
        task.cancel()
    await asyncio.gather(*starts, return_exceptions=True)
