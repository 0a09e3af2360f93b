"""Tables for people: columns padded as kubectl does it, in the width that the terminal has."""

import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from model.plain_text import plain

_GAP: Final = "   "
_LEAST: Final = 12
"""Signs that a text keeps before columns are left out instead."""


class TextTable(NamedTuple):
    """Rows of equal keys."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    cut: tuple[str, ...] = ()
    """Columns whose texts may be cut at the end where the width is not enough."""
    dropped: tuple[str, ...] = ()
    """Columns that are left out where that does not do, in this order."""


def terminal_width() -> int:
    """Returns how many columns the terminal has (or `COLUMNS`); 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def screen_width() -> int:
    """Returns the same for tables without a wide form: 0, all of it, where nobody's terminal is written to."""
    return terminal_width() if sys.stdout.isatty() else 0


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
    """The columns with texts cut, then columns left out, until they fit or there is nothing left to give up."""
    shown = dict(zip(table.columns, columns, strict=True))
    for name in (None, *table.dropped):
        if name is not None:
            shown.pop(name, None)
        sizes = {each: max(map(len, cells)) for each, cells in shown.items()}
        over = sum(sizes.values()) + len(_GAP) * (len(sizes) - 1) - width
        least = {each: max(len(each), min(_LEAST, sizes[each])) for each in table.cut if each in shown}
        if over <= sum(sizes[each] - least[each] for each in least):
            break
    for each in sorted(least, key=lambda it: -sizes[it]):
        if over > 0:
            given = min(over, sizes[each] - least[each])
            over -= given
            shown[each] = [_cut(text, sizes[each] - given) for text in shown[each]]
    return list(shown.values())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
