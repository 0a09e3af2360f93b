"""Pages of HTML that need nothing else: no script, nothing to load. Every text in them is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from model.plain_text import plain

_STYLE: Final = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{border-bottom:1px solid #ddd;padding:.25em .7em;text-align:right}"
    "td:first-child,th:first-child{text-align:left}figure{margin:1.5em 0}figcaption{font-weight:600}"
    "svg{max-width:100%;height:auto}.wide{overflow-x:auto}"
)
_META: Final = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
_WIDTH, _ROW, _LEFT = 860, 22, 240


def safe(text: str) -> str:
    """Returns a text as it may stand in HTML, without what terminals and browsers would take for more than text."""
    return escape(plain(text))


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, which scrolls by itself where it is wider than the screen."""
    head = "".join(f"<th>{safe(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>'


def html_page(title: str, parts: Iterable[str]) -> str:
    """Returns the page; its parts are HTML."""
    body = "\n".join(parts)
    head = f"<head>{_META}<title>{safe(title)}</title><style>{_STYLE}</style></head>"
    return f'<!doctype html>\n<html lang="en">{head}\n<body><h1>{safe(title)}</h1>\n{body}\n</body></html>\n'


def html_bars(title: str, bars: Sequence[tuple[str, float, str]]) -> str:
    """Returns a chart of bars: of each its name, its length (any unit, 0 or more) and what is written beside it."""
    most = max((length for _, length, _ in bars), default=0.0) or 1.0
    drawn = []
    for n, (name, length, told) in enumerate(bars):
        top, width = n * _ROW, (_WIDTH - _LEFT - 120) * max(0.0, length) / most
        shown = name if len(name) <= 36 else f"{name[:35]}…"
        drawn.append(
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{safe(shown)}</text>'
            f'<rect x="{_LEFT}" y="{top + 3}" width="{width:.1f}" height="{_ROW - 6}" fill="{COLOURS[0]}"/>'
            f'<text x="{_LEFT + width + 6:.1f}" y="{top + 15}">{safe(told)}</text>'
        )
    box = f'viewBox="0 0 {_WIDTH} {max(1, len(bars)) * _ROW}" font-size="12" role="img"'
    return f"<figure><figcaption>{safe(title)}</figcaption>\n<svg {box}>{''.join(drawn)}</svg></figure>"
