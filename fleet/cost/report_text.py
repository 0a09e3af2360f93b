"""The month's report for a lead: numbers and costs as text, as JSON, and as one page of HTML that can be mailed."""

import json
from collections.abc import Sequence
from typing import Final

from fleet.cost.indicators import Indicators, as_numbers, waits_rows
from fleet.cost.statement import Statement
from fleet.cost.statement_text import MOST_BARS, statement_notes
from model.plain_text import plain

_WAITS: Final = ("queue", "gangs", "p50", "p95", "p99", "quota p50", "machines p50", "pods p50")


def report_rows(it: Indicators) -> Sequence[tuple[str, str]]:
    """Returns name and value of each number."""
    useful = it.usd_per_useful_gpu_h
    models = [
        (f"utilisation of {name}", f"{t.utilisation:.1%} ({t.used / 3600:,.1f} of {t.healthy / 3600:,.1f} GPU-hours)")
        for name, t in it.by_model.items()
    ]
    return [
        ("cost", f"{it.cost / 1e6:,.2f} USD"),
        ("cost of a useful GPU-hour", "-" if useful is None else f"{useful:,.2f} USD"),
        *models,
        ("evictions", str(it.evictions)),
        ("lost to them", f"{it.lost_gpu_s / 3600:,.1f} GPU-hours, {it.lost_cost / 1e6:,.2f} USD"),
        ("fragmentation", f"{it.fragmentation:.1%} of idle GPU-hours on machines that others use in part"),
        ("spot", f"{it.spot_share:.1%} of GPU-hours"),
        ("interruptions", f"{it.interruptions}, {it.interruptions_a_month:.2f} a month of a spot machine"),
    ]


def report_table(it: Indicators, teams: Statement, days: Statement) -> str:
    """Returns the report as text."""
    del days
    rows = report_rows(it)
    width = max(len(plain(name)) for name, _ in rows)
    numbers = [f"{plain(name).ljust(width)}  {value}" for name, value in rows]
    waits = [_WAITS, *waits_rows(it)]
    widths = [max(len(plain(row[n])) for row in waits) for n in range(len(_WAITS))]
    lines = [
        "  ".join(plain(cell).ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in waits
    ]
    costs = [f"{plain(key[0])}: {line.cost / 1e6:,.2f} USD" for key, line in teams.ranked]
    return (
        "\n".join((*numbers, "", "Waits from submit to run:", *lines, "", *costs, "", *statement_notes(teams))) + "\n"
    )


def report_json(it: Indicators, teams: Statement, days: Statement) -> str:
    """Returns the report with exact numbers."""
    found = {
        "month": teams.month.name,
        **as_numbers(it),
        "usdByTeam": {key[0]: line.cost / 1e6 for key, line in teams.ranked},
        "usdByDay": {key[0]: line.cost / 1e6 for key, line in days.ranked},
        "forecastUsd": teams.total.forecast / 1e6,
    }
    return json.dumps(found, indent=2) + "\n"


def report_html(it: Indicators, teams: Statement, days: Statement) -> str:
    """Returns one page: numbers, charts of days, teams and models, waits, and where the prices come from."""
    from model.page import html_bars, html_page, html_table, safe

    models = [(name, t.utilisation, f"{t.utilisation:.1%}") for name, t in it.by_model.items()]
    parts = [
        html_table(("", ""), report_rows(it)),
        html_bars("USD by day", [(key[0], line.cost / 1e6, f"{line.cost / 1e6:,.2f}") for key, line in days.ranked]),
        html_bars(
            "USD by team",
            [(key[0], line.cost / 1e6, f"{line.cost / 1e6:,.2f}") for key, line in teams.ranked[:MOST_BARS]],
        ),
        html_bars("Utilisation by GPU model", models),
        "<h2>Waits from submit to run</h2>",
        html_table(_WAITS, waits_rows(it)),
        *(f"<p>{safe(note)}</p>" for note in statement_notes(teams)),
    ]
    return html_page(f"The fleet in {teams.month.name}", parts)
