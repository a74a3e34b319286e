"""Finds tables on a PDF page by its layout. A PDF has no tables, only pieces of text at positions.

Pieces on one line with wide gaps between them are cells. Consecutive lines whose cells are in the same columns are a
table. Newspaper columns look similar, but their cells are long, so long cells make no table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from holodeck.files.documents import markdown

MAX_PIECES = 3_000  # text pieces per page; a map has more, and no tables
CELL_GAP = 0.9  # in letter heights; a smaller gap is a space between words
LINE_GAP = 3.0  # in letter heights; a larger gap separates two tables
LONG_CELL = 30  # characters, of the cells in the middle: running text
FEW_ROWS, FEW_COLUMNS = 2, 2


class Piece(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float
    text: str

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @property
    def height(self) -> float:
        return max(self.top - self.bottom, 1.0)


@dataclass
class _Cell:
    left: float
    right: float
    text: str
    pieces: list[int]


@dataclass
class _TextLine:
    middle: float
    height: float
    cells: list[_Cell]


@dataclass
class _Table:
    columns: list[tuple[float, float]] = field(default_factory=list)
    lines: list[_TextLine] = field(default_factory=list)

    def accepts(self, line: _TextLine) -> list[tuple[float, float]] | None:
        """Returns the columns with this line added, or None if it does not fit."""
        if self.lines and self.lines[-1].middle - line.middle > LINE_GAP * max(line.height, self.lines[-1].height):
            return None
        columns = list(self.columns)
        taken: set[int] = set()
        for cell in line.cells:
            under = [i for i, (left, right) in enumerate(columns) if cell.left < right and cell.right > left]
            if len(under) > 1 or taken & set(under):
                return None
            if under:
                left, right = columns[under[0]]
                columns[under[0]] = (min(left, cell.left), max(right, cell.right))
                taken.add(under[0])
            else:
                columns.append((cell.left, cell.right))
                columns.sort()
                taken = {i for i, (left, right) in enumerate(columns) for c in line.cells if left <= c.left < right}
        return columns if not self.lines or len(taken) > 1 or len(line.cells) == 1 else None

    def is_one(self) -> bool:
        full = [line for line in self.lines if len(line.cells) > 1]
        cells = [cell.text for line in full for cell in line.cells]
        enough = len(full) > FEW_ROWS or (len(full) == FEW_ROWS and len(self.columns) > FEW_COLUMNS)
        return enough and median(map(len, cells)) <= LONG_CELL and 2 * len(cells) >= len(full) * len(self.columns)

    def written(self) -> str:
        return markdown.table(self._row(line) for line in self.lines)

    def _row(self, line: _TextLine) -> list[str]:
        return [
            " ".join(cell.text for cell in line.cells if cell.left < right and cell.right > left)
            for left, right in self.columns
        ]


def with_tables(pieces: Sequence[Piece]) -> str | None:
    """Returns the text of the page with its tables as Markdown, or None if it has none. Other text keeps its order."""
    if len(pieces) > MAX_PIECES:
        return None
    tables = [table for table in _candidates(_lines(pieces)) if table.is_one()]
    if not tables:
        return None
    owner = {i: table for table in tables for line in table.lines for cell in line.cells for i in cell.pieces}
    shown: list[str] = []
    done: set[int] = set()
    previous: Piece | None = None
    for index, piece in enumerate(pieces):
        table = owner.get(index)
        if table is not None:
            if id(table) not in done:
                done.add(id(table))
                shown.append(f"\n\n{table.written()}\n\n")
            previous = None
            continue
        same_line = previous is not None and abs(previous.middle - piece.middle) < previous.height / 2
        shown.append((" " if same_line else "\n" if previous is not None else "") + piece.text)
        previous = piece
    return "".join(shown).strip()


def _lines(pieces: Sequence[Piece]) -> list[_TextLine]:
    lines: list[list[int]] = []
    for index in sorted(range(len(pieces)), key=lambda i: -pieces[i].middle):
        here = pieces[index]
        if lines and pieces[lines[-1][0]].middle - here.middle < min(here.height, pieces[lines[-1][0]].height) / 2:
            lines[-1].append(index)
        else:
            lines.append([index])
    return [_line(pieces, sorted(line, key=lambda i: pieces[i].left)) for line in lines]


def _line(pieces: Sequence[Piece], order: list[int]) -> _TextLine:
    height = max(pieces[index].height for index in order)
    cells: list[_Cell] = []
    for index in order:
        piece = pieces[index]
        if cells and piece.left - cells[-1].right < CELL_GAP * height:
            cells[-1].right = max(cells[-1].right, piece.right)
            cells[-1].text += f" {piece.text}"
            cells[-1].pieces.append(index)
        else:
            cells.append(_Cell(piece.left, piece.right, piece.text, [index]))
    return _TextLine(pieces[order[0]].middle, height, cells)


def _candidates(lines: Sequence[_TextLine]) -> Iterator[_Table]:
    table = _Table()
    for line in lines:
        columns = table.accepts(line) if table.lines or len(line.cells) > 1 else None
        if columns is None:
            yield table
            table = _Table()
            columns = table.accepts(line) if len(line.cells) > 1 else None
        if columns is not None:
            table.columns = columns
            table.lines.append(line)
    yield table
