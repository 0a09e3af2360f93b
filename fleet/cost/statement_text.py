"""A statement as text for a terminal, as CSV, as JSON, and as one page of HTML."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from fleet.cost.statement import Statement, StatementLine
from model.plain_text import instant, plain

MOST_BARS: Final = 25
_COLUMNS: Final = ("USD", "share", "borrowed USD", "lost USD", "GPU-hours", "forecast USD")


def statement_table(it: Statement) -> str:
    """Returns the statement as columns of text, and below it where its prices come from."""
    rows = [(*it.by, *_COLUMNS), *_rows(it), (*_total(it), *_cells(it, it.total))]
    widths = [max(len(plain(row[n])) for row in rows) for n in range(len(rows[0]))]
    names = len(it.by)
    lines = [
        "  ".join(
            plain(cell).ljust(width) if n < names else plain(cell).rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join((*lines, "", *statement_notes(it))) + "\n"


def _rows(it: Statement) -> Sequence[tuple[str, ...]]:
    return [(*key, *_cells(it, line)) for key, line in it.ranked]


def _total(it: Statement) -> tuple[str, ...]:
    return ("total", *[""] * (len(it.by) - 1))


def _cells(it: Statement, line: StatementLine) -> tuple[str, ...]:
    share = line.cost / it.total.cost if it.total.cost else 0.0
    amounts = (_usd(line.cost), f"{share:.1%}", _usd(line.borrowed), _usd(line.lost))
    return (*amounts, f"{line.gpu_s / 3600:,.1f}", _usd(line.forecast))


def _usd(micro: int) -> str:
    return f"{micro / 1e6:,.2f}"


def statement_notes(it: Statement) -> Sequence[str]:
    """Returns sentences: what time this is of, and the source and age of its prices."""
    whole = it.until_s >= it.month.end_s
    told = f"{it.month.name}: " + ("the whole month" if whole else f"up to {_instant(it.until_s)}, forecast to its end")
    prices = [
        f"{_usd(used.cost)} USD by {source}, at most {_age(used.oldest_s)} old when charged"
        for source, used in sorted(it.prices.items(), key=lambda each: (-each[1].cost, each[0]))
    ]
    return [told, *(["Prices: " + "; ".join(prices)] if prices else [])]


def _age(seconds: float) -> str:
    return f"{seconds / 86_400:.0f} days" if seconds >= 2 * 86_400 else f"{max(0.0, seconds) / 3600:.1f} h"


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def statement_csv(it: Statement) -> str:
    """Returns the lines with exact amounts; the total is left to whoever sums them up."""
    told = io.StringIO()
    write = csv.writer(told, lineterminator="\n")
    write.writerow((*it.by, "usd", "borrowed_usd", "lost_usd", "gpu_hours", "forecast_usd"))
    for key, line in it.ranked:
        amounts = (line.cost, line.borrowed, line.lost)
        write.writerow(
            (*key, *(f"{it / 1e6:.6f}" for it in amounts), f"{line.gpu_s / 3600:.6f}", f"{line.forecast / 1e6:.6f}")
        )
    return told.getvalue()


def statement_json(it: Statement) -> str:
    """Returns the statement with exact amounts."""
    prices = [
        {"source": source, "usd": used.cost / 1e6, "oldestSeconds": round(used.oldest_s, 3)}
        for source, used in sorted(it.prices.items())
    ]
    found = {
        "month": it.month.name,
        "until": instant(it.until_s),
        "by": list(it.by),
        "lines": [{**dict(zip(it.by, key, strict=True)), **_amounts(line)} for key, line in it.ranked],
        "total": _amounts(it.total),
        "prices": prices,
    }
    return json.dumps(found, indent=2) + "\n"


def _amounts(line: StatementLine) -> dict[str, Any]:
    return {
        "usd": line.cost / 1e6,
        "borrowedUsd": line.borrowed / 1e6,
        "lostUsd": line.lost / 1e6,
        "gpuHours": round(line.gpu_s / 3600, 6),
        "forecastUsd": line.forecast / 1e6,
    }


def statement_html(it: Statement) -> str:
    """Returns one page with a chart of the dearest lines and all of them in a table."""
    from model.page import html_bars, html_page, html_table, safe  # the names of all signs of HTML come with it

    bars = [(" / ".join(key), line.cost / 1e6, _usd(line.cost)) for key, line in it.ranked[:MOST_BARS]]
    table = html_table((*it.by, *_COLUMNS), [*_rows(it), (*_total(it), *_cells(it, it.total))])
    notes = [f"<p>{safe(note)}</p>" for note in statement_notes(it)]
    return html_page(f"Costs of {it.month.name}", [html_bars(f"USD by {', '.join(it.by)}", bars), table, *notes])
