"""Jupyter notebooks: text cells unchanged, code in fences, output below. Images in outputs become a note."""

import json
from collections.abc import Iterator
from typing import Any

from holodeck.core.text import strip_controls
from holodeck.files.documents.document import Document, DocumentRefused, counted

MAX_OUTPUT = 5_000  # characters of one output: tables and logs of training runs are long


def read(data: bytes) -> Document:
    try:
        notebook = json.loads(data)
        cells = notebook["cells"]
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DocumentRefused("damaged", "is not a Jupyter notebook of version 4") from error
    if not isinstance(cells, list):
        raise DocumentRefused("damaged", "is not a Jupyter notebook of version 4")
    found = [cell for cell in cells if isinstance(cell, dict)]
    return Document(_blocks(found, language if isinstance(language, str) else ""), [counted(len(found), "cell")])


def _blocks(cells: list[dict[str, Any]], language: str) -> Iterator[str]:
    for cell in cells:
        source = _joined(cell.get("source"))
        if cell.get("cell_type") != "code":
            yield source.strip()
            continue
        if source.strip():
            yield f"```{language}\n{source.rstrip()}\n```"
        for output in cell.get("outputs") or ():
            yield _output(output) if isinstance(output, dict) else ""


def _output(output: dict[str, Any]) -> str:
    data = output.get("data")
    data = data if isinstance(data, dict) else {}
    if output.get("output_type") == "error":
        text = f"{output.get('ename')}: {output.get('evalue')}"
    else:
        text = _joined(output.get("text") or data.get("text/plain"))
    images = [kind for kind in data if kind.startswith("image/")]
    text = strip_controls(text).strip()
    if len(text) > MAX_OUTPUT:
        text = f"{text[:MAX_OUTPUT]}\n[{len(text) - MAX_OUTPUT:,} more characters of this output are left out.]"
    lines = [f"Output:\n{text}" if text else "", *(f"[Output: an image ({kind})]" for kind in images)]
    return "\n".join(line for line in lines if line)


def _joined(source: object) -> str:
    if isinstance(source, list):
        return "".join(piece for piece in source if isinstance(piece, str))
    return source if isinstance(source, str) else ""
