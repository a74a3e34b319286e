"""Excel workbooks: one Markdown table for each sheet, with the values that Excel last showed, or else the formulas.

Only existing cells are read: one cell in the last corner of a sheet costs one cell, not seventeen billion. Excel stores
dates as numbers; only their format distinguishes them.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from holodeck.files.documents import markdown, sheets
from holodeck.files.documents.document import Document, counted
from holodeck.files.documents.package import Package
from holodeck.files.documents.sheets import Sheet
from holodeck.files.documents.xml import Element

MAX_SHEETS = 100
MAX_ROWS = 5_000  # rows per sheet
MAX_COLUMNS = 256
MAX_CELLS = 50_000  # cells per sheet
MAX_SHARED = 500_000  # strings
_DATE_FORMATS = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}  # ECMA-376 part 1, 18.8.30
_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')
_REFERENCE = re.compile(r"([A-Z]{1,3})\d+")
_TIME_OF_DAY = 1.0  # serial numbers below are times without a day
_LAST_DAY = 2_958_466  # the first that Excel cannot show: the year 10000


class _Workbook:
    def __init__(self, package: Package) -> None:
        self._package = package
        self._main = package.main_part()
        self._book = package.root(self._main, "workbook")
        self._relations = package.relations(self._main)
        self._dates = self._date_styles()
        old = self._book.value("workbookPr", of="date1904") in {"1", "true"}
        self._epoch = datetime(1904, 1, 1) if old else datetime(1899, 12, 30)  # noqa: DTZ001  Excel knows no zones
        self._shared: list[str] | None = None

    def sheets(self) -> list[Element]:
        sheets = self._book.child("sheets")
        return [sheet for sheet in sheets.children if sheet.tag == "sheet"] if sheets else []

    def blocks(self) -> Iterator[str]:
        found = self.sheets()
        yield from sheets.blocks(map(self._sheet, found[:MAX_SHEETS]))
        if len(found) > MAX_SHEETS:
            yield f"[{len(found) - MAX_SHEETS:,} more sheets are left out.]"

    def _sheet(self, sheet: Element) -> Sheet:
        part = self._relations.get(sheet.attributes.get("r:id", ""), ("", ""))[1]
        hidden = " (hidden)" if sheet.attributes.get("state", "visible") != "visible" else ""
        rows, remarks = self._rows(part)
        remarks += [*self._comments(part), *self._drawings(part)]
        return Sheet(
            f"{sheet.attributes.get('name', '')}{hidden}", markdown.table(_without_empty_columns(rows)), remarks
        )

    def _rows(self, part: str) -> tuple[list[dict[int, str]], list[str]]:
        """Returns the non-empty rows as column → text, and remarks on what is left out."""
        rows: list[dict[int, str]] = []
        remarks: list[str] = []
        cells = 0
        for element in self._package.elements(part, "row", "headerFooter"):
            if element.tag == "headerFooter":
                lines = [("header" if each.tag.endswith("Header") else "footer", each) for each in element.children]
                remarks += [f"Printed {kind}: {line.text}" for kind, line in lines if line.text]
                continue
            if len(rows) >= MAX_ROWS or cells >= MAX_CELLS:
                return rows, [f"[The sheet is longer; only its first {counted(len(rows), 'row')} with text are shown.]"]
            if found := self._cells(element):
                rows.append(found)
                cells += len(found)
        if len({column for row in rows for column in row}) > MAX_COLUMNS or any(len(r) >= MAX_COLUMNS for r in rows):
            remarks.append(f"[The sheet is wider; its first {MAX_COLUMNS} columns with text are shown.]")
        return rows, remarks

    def _comments(self, part: str) -> Iterator[str]:
        comments = [
            markdown.item(0, f"{comment.attributes.get('ref', '')}: {_rich(comment.child('text'))}")
            for related in self._package.related(part, "comments")[:1]
            for comment in self._package.elements(related, "comment")
        ]
        if comments:
            yield "\n".join(["Comments:", *comments])

    def _drawings(self, part: str) -> Iterator[str]:
        drawings = map(self._package.relations, self._package.related(part, "drawing"))
        related = [kind for relations in drawings for kind, _ in relations.values()]
        found = [counted(related.count(kind), kind) for kind in ("image", "chart") if kind in related]
        if found:
            yield f"[Not shown: {', '.join(found)}.]"

    def _cells(self, row: Element) -> dict[int, str]:
        found: dict[int, str] = {}
        column = -1
        for cell in row.children:
            if cell.tag != "c":
                continue
            reference = _REFERENCE.fullmatch(cell.attributes.get("r", ""))
            column = _column(reference[1]) if reference else column + 1  # cells without a reference follow one another
            if len(found) < MAX_COLUMNS and (text := self._text(cell).strip()):
                found[column] = text
        return found

    def _text(self, cell: Element) -> str:
        kind, value = cell.attributes.get("t", "n"), cell.child("v")
        if kind == "inlineStr":
            return _rich(cell.child("is"))
        if value is None or (not value.text and kind != "str"):
            return _formula(cell.child("f"))
        if kind == "s":
            return self._shared_string(value.text)
        if kind == "b":
            return "TRUE" if value.text.strip() == "1" else "FALSE"
        if kind == "n":
            return self._number(value.text.strip(), cell.attributes.get("s", "0"))
        return value.text

    def _shared_string(self, index: str) -> str:
        if self._shared is None:
            self._shared = []
            for part in self._package.related(self._main, "sharedStrings")[:1]:
                for entry in self._package.elements(part, "si"):
                    self._shared.append(_rich(entry))
                    if len(self._shared) >= MAX_SHARED:
                        break
        number = int(index) if index.strip().isdecimal() and len(index) < 10 else -1  # noqa: PLR2004  nine digits
        if number >= MAX_SHARED:
            return "[text left out]"
        return self._shared[number] if 0 <= number < len(self._shared) else ""

    def _number(self, text: str, style: str) -> str:
        try:
            number = float(text)
        except ValueError:
            return text
        if style in self._dates and 0 <= number < _LAST_DAY:
            return self._date(number)
        return repr(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.15g}"  # noqa: PLR2004  what Excel's own digits hold

    def _date(self, serial: float) -> str:
        moment = (self._epoch + timedelta(days=serial) + timedelta(milliseconds=500)).replace(microsecond=0)
        if serial < _TIME_OF_DAY:
            return moment.time().isoformat()
        return moment.date().isoformat() if serial.is_integer() else moment.isoformat(sep=" ")

    def _date_styles(self) -> set[str]:
        formats: dict[str, str] = {}
        dates = set()
        for part in self._package.related(self._main, "styles")[:1]:
            for entry in self._package.elements(part, "numFmt", "cellXfs"):
                if entry.tag == "numFmt":
                    formats[entry.attributes.get("numFmtId", "")] = entry.attributes.get("formatCode", "")
                    continue
                for number, style in enumerate(entry.children):
                    if _is_date(style.attributes.get("numFmtId", "0"), formats):
                        dates.add(str(number))
        return dates


def _formula(formula: Element | None) -> str:
    """Returns a formula. Programs that do not calculate (openpyxl, pandas, many exports) write it without a value."""
    if formula is None:
        return ""
    return f"={formula.text.strip()}" if formula.text.strip() else "[formula without a value]"


def _is_date(format_id: str, formats: dict[str, str]) -> bool:
    if format_id in formats:
        return bool(set(_QUOTED.sub("", formats[format_id]).lower()) & set("ymdhs"))
    return format_id.isdecimal() and len(format_id) < 5 and int(format_id) in _DATE_FORMATS  # noqa: PLR2004


def _rich(element: Element | None) -> str:
    """Returns the text of a string without its pronunciation (rPh)."""
    if element is None:
        return ""
    runs = (child for child in element.children if child.tag in {"t", "r"})
    return "".join(run.text if run.tag == "t" else _rich(run) for run in runs)


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _without_empty_columns(rows: list[dict[int, str]]) -> Iterator[list[str]]:
    used = sorted({column for row in rows for column in row})[:MAX_COLUMNS]
    return ([row.get(column, "") for column in used] for row in rows)


def read(data: bytes) -> Document:
    workbook = _Workbook(Package(data))
    return Document(workbook.blocks(), [counted(len(workbook.sheets()), "sheet")])
