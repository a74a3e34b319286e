"""The zip package of Office, OpenDocument and EPUB files, checked before anything is unpacked.

External relations (a picture or template at some address) are never followed. The code opens only members of the
archive.
"""

import posixpath
import zipfile
import zlib
from collections.abc import Collection, Iterator
from io import BytesIO

from holodeck.files.documents.document import DocumentRefused
from holodeck.files.documents.xml import Element, elements

MAX_ENTRIES = 2_000
MAX_UNPACKED = 200_000_000
MAX_RATIO = 200
HARMLESS = 5_000_000  # bytes: below this a high ratio is only repetitive
MAX_PART = 20_000_000  # bytes of a part that is not streamed
UNPACKING_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
ENCRYPTED = 0x1


def opened(data: bytes) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise DocumentRefused("damaged", "is damaged: it is not a complete zip archive") from error


class Package:
    def __init__(self, data: bytes) -> None:
        self._archive = opened(data)
        self._names = _checked(self._archive.infolist(), len(data))

    def has(self, name: str) -> bool:
        return name in self._names

    def elements(
        self, name: str, *tags: str, announced: Collection[str] = (), mixed: bool = False
    ) -> Iterator[Element]:
        """Streams the elements of a part. A missing part has none."""
        if not self.has(name):
            return
        try:
            with self._archive.open(name) as stream:
                yield from elements(stream, tags, announced=announced, mixed=mixed)
        except UNPACKING_FAULTS as error:
            raise _cannot_unpack(name) from error

    def bytes_of(self, name: str) -> bytes:
        """Reads a whole part of at most `MAX_PART` bytes. A missing part is empty."""
        if not self.has(name):
            return b""
        try:
            with self._archive.open(name) as stream:
                return stream.read(MAX_PART)
        except UNPACKING_FAULTS as error:
            raise _cannot_unpack(name) from error

    def root(self, name: str, tag: str) -> Element:
        return next(self.elements(name, tag), Element(tag, {}))

    def main_part(self) -> str:
        """Returns the name of the main part. Word sometimes calls it document2.xml."""
        found = self.related("", "officeDocument")
        if not found or not self.has(found[0]):
            raise DocumentRefused("damaged", "is damaged: its main part is missing")
        return found[0]

    def related(self, part: str, kind: str) -> list[str]:
        """Returns the parts that this part is related to in this way, in order."""
        return [target for type_, target in self.relations(part).values() if type_ == kind]

    def relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Maps ids to (last word of the type, target). A target is a part of the package, or an external address."""
        folder, name = posixpath.split(part)
        found = {}
        for relation in self.elements(posixpath.join(folder, "_rels", f"{name}.rels"), "Relationship"):
            attributes = relation.attributes
            target = attributes.get("Target", "")
            if attributes.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            found[attributes.get("Id", "")] = (attributes.get("Type", "").rpartition("/")[2], target)
        return found


def _cannot_unpack(name: str) -> DocumentRefused:
    return DocumentRefused("damaged", f"is damaged: its part {posixpath.basename(name)} cannot be unpacked")


def _checked(infos: list[zipfile.ZipInfo], packed: int) -> Collection[str]:
    if len(infos) > MAX_ENTRIES:
        raise DocumentRefused("too_large", f"holds {len(infos):,} parts; {MAX_ENTRIES:,} are the limit")
    if any(info.flag_bits & ENCRYPTED for info in infos):
        raise DocumentRefused("encrypted", "is protected by a password")
    unpacked = sum(info.file_size for info in infos)
    if unpacked > MAX_UNPACKED or (unpacked > HARMLESS and unpacked > packed * MAX_RATIO):
        raise DocumentRefused("too_large", f"grows to {unpacked:,} bytes when it is unpacked")
    return {info.filename for info in infos}
