"""The base class and the types of settings: what all blocks of an agent file share.

A package that needs settings declares them as a Block, with defaults and bounds. The agent file's schema uses or extends
that class, so nothing is declared twice.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StringConstraints


class Block(BaseModel):
    """A block of keys. An unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _as_written(value: object) -> object:
    """Turns YAML's numbers and booleans into text: `env: {PORT: 8080, DEBUG: true}`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _secret_of_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NO_NUL = r"^[^\x00]*$"  # the operating system allows none in a path, an argument or a variable

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\s\x00-\x1f]+$")]
ShortText = Annotated[str, StringConstraints(max_length=2000)]
FilePath = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024, pattern=NO_NUL)]
Url = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2048, pattern=r"^https?://[^\s/]+")]
Text = Annotated[str, BeforeValidator(_as_written), StringConstraints(max_length=16_384, pattern=NO_NUL)]
Secret = Annotated[SecretStr, BeforeValidator(_secret_of_text), Field(max_length=4096)]
Seconds = Annotated[float, Field(gt=0, le=3600)]
