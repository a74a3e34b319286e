"""Differences between AG-UI clients, by the version they understand; the media that AG-UI knows, and names of files.

AG-UI sorts media by kind and names the source of the bytes: inline (`data`), a URL (`url`), or a handle in a provider's
file store (`file`). A core MediaPart has data or a URL, so a handle becomes a URN, which no code mistakes for something
to fetch. `holodeck.files` checks whether the bytes match their media type.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

PROTOCOL_VERSION = "1.0"

FILE_URN = "urn:ag-ui:file:"
MEDIA_KINDS = ("image", "audio", "video", "document")


class Profile(Enum):
    """Clients before 1.0 never send a version, and three shapes of 1.0 end their run.

    These are: a tool result as a list of parts, `pendingToolCallIds`, and the outcome `cancelled`.
    """

    FULL = auto()
    LEGACY = auto()


ENCODING: Mapping[Profile, Mapping[str, str]] = {Profile.FULL: {}, Profile.LEGACY: {"profile": "legacy"}}
"""`RunRequest.encoding` of the runs of each."""

PROFILES: Mapping[Any, Profile] = {"legacy": Profile.LEGACY}
"""The profile by the member `profile` of an encoding; FULL if it has none."""
