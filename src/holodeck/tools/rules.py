"""An agent file's rules for the tools of one toolset: which are offered, which need approval, which may be repeated.

Names are the toolset's own, without a prefix, and may be patterns (`get_*`). The loop asks for approval, and the tool
runner repeats calls; the catalogue's rows only carry the flags.
"""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints

from holodeck.blocks import Block, Identifier
from holodeck.core.tools import Approval, ToolSchema
from holodeck.tools.names import suggestion, tools_of
from holodeck.tools.result_cache import CacheRule

ALL = "*"
ToolPattern = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_*?\[\]!-]+$")]
ArgumentBindings = Annotated[
    dict[Identifier, Any],
    Field(max_length=20, description="Arguments filled in by the runtime and hidden from the model"),
]


def _rule_for_all(value: object) -> object:
    """Expands `approval: always` to `approval: {"*": always}`."""
    if not isinstance(value, str):
        return value
    if value not in list(Approval):
        raise ValueError(f"'{value}' is not one of {', '.join(Approval)}, nor a block of tools with these")
    return {ALL: value}


_ByTool = Annotated[dict[ToolPattern, Approval], Field(max_length=128)]
ApprovalRules = Annotated[_ByTool, BeforeValidator(_rule_for_all, json_schema_input_type=Approval | _ByTool)]


class ToolRules(Block):
    """The rules. `include` None means all tools; `repeatable` None leaves it to the toolset."""

    bind: ArgumentBindings = Field(default={})
    prefix: Annotated[str, StringConstraints(max_length=32, pattern=r"^[A-Za-z0-9_-]*$")] = Field(
        "", description="Put before the name of each tool, so that two servers may have tools of the same name"
    )
    include: list[ToolPattern] | None = Field(
        None, max_length=128, description="Only these tools are offered; names or patterns such as get_*"
    )
    exclude: list[ToolPattern] = Field(
        default=[], max_length=128, description="These tools are not offered; names or patterns"
    )
    approval: ApprovalRules = Field(
        default={},
        description="Tools that wait for a person's approval: one rule for all, or rules by name, pattern and *",
    )
    repeatable: bool | Annotated[list[ToolPattern], Field(max_length=128)] | None = Field(
        None,
        description="Tools that may be called again after a failure; default: those that the server marks as "
        "read-only or idempotent",
    )
    cache: dict[ToolPattern, CacheRule] = Field(
        default={}, max_length=128, description="Tools whose results are kept for a while, by name or pattern"
    )

    def offers(self, name: str) -> bool:
        return not _matches(name, self.exclude) and (self.include is None or _matches(name, self.include))

    def approval_of(self, schema: ToolSchema) -> Approval:
        """The rule for this exact name, else the strictest of the matching patterns, else the one for `*`."""
        if schema.name in self.approval:
            return self.approval[schema.name]
        patterns = [rule for name, rule in self.approval.items() if name != ALL and fnmatchcase(schema.name, name)]
        if patterns:
            return Approval.ALWAYS if Approval.ALWAYS in patterns else Approval.NEVER
        return self.approval.get(ALL, schema.approval)

    def is_repeatable(self, schema: ToolSchema) -> bool:
        if self.repeatable is None or isinstance(self.repeatable, bool):
            return schema.repeatable if self.repeatable is None else self.repeatable
        return schema.repeatable or _matches(schema.name, self.repeatable)

    def cache_of(self, schema: ToolSchema) -> CacheRule | None:
        """The cache rule of a tool. None if it needs approval: a person agrees to a call, not to its repetition."""
        if self.approval_of(schema) is Approval.ALWAYS:
            return None
        if schema.name in self.cache:
            return self.cache[schema.name]
        return next((rule for name, rule in self.cache.items() if fnmatchcase(schema.name, name)), None)

    def cached_though_approved(self, listing: Sequence[ToolSchema]) -> list[str]:
        """Tools that `cache` lists by name although they need approval."""
        return [each.name for each in listing if each.name in self.cache and self.cache_of(each) is None]

    def misnamed(self, label: str, known: Sequence[str]) -> list[str]:
        """One sentence for each name that matches no tool: a typo could leave a tool open that was meant to be closed."""
        keys = self._keys_by_name()
        return [
            f"{label} has no tool '{name}' ({', '.join(keys[name])}){suggestion(name, known) or tools_of(known)}"
            for name in sorted(keys)
            if not any(fnmatchcase(each, name) for each in known)
        ]

    def _keys_by_name(self) -> dict[str, list[str]]:
        """The names and patterns in the rules, with the keys of the agent file that contain them."""
        repeatable = () if self.repeatable is None or isinstance(self.repeatable, bool) else self.repeatable
        blocks: dict[str, Collection[str]] = {"include": self.include or (), "exclude": self.exclude}
        blocks |= {"approval": self.approval, "repeatable": repeatable, "cache": self.cache}
        found: dict[str, list[str]] = {}
        for key, names in blocks.items():
            for name in {*names} - {ALL}:
                found.setdefault(name, []).append(key)
        return found


def _matches(name: str, patterns: Collection[str]) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
