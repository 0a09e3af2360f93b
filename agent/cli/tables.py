"""Tables for people: columns padded as kubectl does it, in the width that the terminal has."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from model.plain_text import plain

_GAP: Final = "   "
_LEAST: Final = 12
"""Signs that a text keeps before columns are left out instead; a name keeps as many where nothing else is left."""


class TextTable(NamedTuple):
    """Rows of equal keys."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    cut: tuple[str, ...] = ()
    """Columns whose texts may be cut at the end where the width is not enough."""
    dropped: tuple[str, ...] = ()
    """Columns that are left out where that does not do, in this order; in the end the others are cut in the middle."""


def table_width() -> int:
    """Returns how wide a table may be: as the terminal (or `COLUMNS`); 0 = in full, where nobody's is written to.

    What goes into a pipe or a file is for programs, as kubectl has it: nothing is cut or left out of it.
    """
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 0


def render(table: TextTable, width: int = 0) -> str:
    """The table as lines; 0 = in full, whatever width that takes."""
    if not table.rows:
        return "nothing to show"
    columns = [_column(table, name) for name in table.columns]
    if width:
        columns = _fitted(table, columns, width)
    widths = [max(map(len, cells)) for cells in columns]
    lines = zip(*columns, strict=True)
    return "\n".join(_GAP.join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _column(table: TextTable, name: str) -> list[str]:
    return [name.upper(), *(plain(str(row[name])) for row in table.rows)]


def _fitted(table: TextTable, columns: Sequence[list[str]], width: int) -> list[list[str]]:
    """The columns with texts cut, then columns left out, then names cut, until they fit or nothing is left to give."""
    shown = dict(zip(table.columns, columns, strict=True))
    for name in (None, *table.dropped):
        if name is not None:
            shown.pop(name, None)
        sizes = {each: max(map(len, cells)) for each, cells in shown.items()}
        over = sum(sizes.values()) + len(_GAP) * (len(sizes) - 1) - width
        if over <= sum(sizes[each] - _least(each, sizes) for each in table.cut if each in shown):
            break
    for each in sorted((it for it in table.cut if it in shown), key=lambda it: -sizes[it]):
        given = min(max(0, over), sizes[each] - _least(each, sizes))
        over -= given
        shown[each] = [_cut(text, sizes[each] - given) for text in shown[each]]
    kept = _narrowed({each: size for each, size in sizes.items() if each not in table.cut}, over)
    shown |= {each: [_cut_within(text, most) for text in shown[each]] for each, most in kept.items()}
    return list(shown.values())


def _narrowed(sizes: Mapping[str, int], over: int) -> dict[str, int]:
    """How wide columns may be so that so many signs are given up, the widest first, a sign at a time."""
    kept = dict(sizes)
    for _ in range(over):
        widest = max(kept, key=lambda it: (kept[it] > _least(it, sizes), kept[it]), default="")
        if not widest or kept[widest] <= _least(widest, sizes):
            break
        kept[widest] -= 1
    return kept


def _least(name: str, sizes: Mapping[str, int]) -> int:
    return max(len(name), min(_LEAST, sizes[name]))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cut_within(text: str, most: int) -> str:
    """A name in so many signs: of names alike the end tells which it is."""
    end = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
