"""What is wrong with a value by its JSON Schema, one sentence each. Prepared schemas are kept.

`holodeck.tools.schema_check` does the checking; it is loaded when the first toolset starts.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from holodeck.tools.schema_check import SchemaCheck

logger = logging.getLogger(__name__)

MAX_PROBLEMS = 20  # of one value; what follows them is only counted


class Problem(NamedTuple):
    """One fault of a value. Where its type is wrong, `wanted` names the JSON types that fit at `path`."""

    text: str
    path: tuple[str | int, ...] = ()
    wanted: tuple[str, ...] = ()


def problems_of(subject: str, schema: Mapping[str, Any], value: Mapping[str, Any]) -> list[Problem]:
    """All faults at once. `subject` is what the log calls the value, in the plural."""
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        logger.warning("%s go unchecked, their schema is no JSON: %s", subject, error)
        return []
    return _check_of(subject, encoded).problems(value)


@lru_cache(maxsize=512)
def _check_of(subject: str, encoded_schema: bytes) -> "SchemaCheck":
    from holodeck.tools.schema_check import SchemaCheck  # noqa: PLC0415  jsonschema: an agent without tools does not need it; a catalogue loads it when it starts

    return SchemaCheck(subject, msgspec.json.decode(encoded_schema, type=dict[str, Any]))
