"""What is wrong with a value by its JSON Schema, one sentence each. Prepared schemas are kept.

How it is found out is the business of `holodeck.tools.schema_check`, which is loaded when there is something to check.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from holodeck.tools.schema_check import SchemaCheck

logger = logging.getLogger(__name__)

MAX_PROBLEMS = 5


def problems_of(subject: str, schema: Mapping[str, Any], value: Mapping[str, Any]) -> list[str]:
    """`subject` is what the log calls the value, in the plural."""
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        logger.warning("%s go unchecked, their schema is no JSON: %s", subject, error)
        return []
    return _check_of(subject, encoded).problems(value)


@lru_cache(maxsize=512)
def _check_of(subject: str, encoded_schema: bytes) -> "SchemaCheck":
    from holodeck.tools.schema_check import SchemaCheck  # noqa: PLC0415  jsonschema: a start does not need it, the first call does

    return SchemaCheck(subject, msgspec.json.decode(encoded_schema, type=dict[str, Any]))
