"""Lists the content of a zip archive: names and sizes. Nothing is unpacked, so a zip bomb is only a line."""

import zipfile
from collections.abc import Iterator

from holodeck.core.text import one_line
from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document, counted
from holodeck.files.documents.package import ENCRYPTED, MAX_ENTRIES, opened


def read(data: bytes) -> Document:
    entries = [entry for entry in opened(data).infolist() if not entry.is_dir()]
    return Document(_blocks(entries), [counted(len(entries), "file")])


def _blocks(entries: list[zipfile.ZipInfo]) -> Iterator[str]:
    if not entries:
        yield "[The archive is empty.]"
        return
    yield "The files in the archive are listed, not read; send those that matter."
    yield markdown.table([["name", "bytes", "changed"], *map(_row, entries[:MAX_ENTRIES])])
    if len(entries) > MAX_ENTRIES:
        yield f"[{len(entries) - MAX_ENTRIES:,} more files are not listed.]"


def _row(entry: zipfile.ZipInfo) -> list[str]:
    locked = " (encrypted)" if entry.flag_bits & ENCRYPTED else ""
    year, month, day = entry.date_time[:3]
    return [one_line(entry.filename, 300) + locked, f"{entry.file_size:,}", f"{year}-{month:02}-{day:02}"]
