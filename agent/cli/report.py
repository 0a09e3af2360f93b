"""`muster report`: a month in numbers for who leads the fleet, from the ledger."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from agent.cli import exits
from agent.cli.cost import CostRequest, ledger_of, month_of, month_starts, month_sums, month_used
from agent.config import InvalidConfiguration, load_settings
from agent.ledger import open_ledger
from fleet.cost.indicators import Indicators, indicators
from fleet.cost.report_text import report_html, report_json, report_table
from fleet.cost.statement import Statement, UnknownMonth, fields_of, statement
from model.plain_text import plain_block
from providers.clock import Clock
from providers.ports import LedgerError

_RENDERERS: Final[Mapping[str, Callable[[Indicators, Statement, Statement], str]]] = {
    "table": report_table,
    "json": report_json,
    "html": report_html,
}


def show_report(ask: CostRequest, output: str, clock: Clock) -> int:
    """Print it; the exit code."""
    try:
        settings = None if ask.ledger else load_settings(ask.config)
        found, month = ledger_of(settings, ask.ledger), month_of(ask.month, clock)
        ledger = open_ledger(found, settings.region if settings else "", read_only=True)
        try:
            costs = list(month_sums(ledger, month, fields_of(["team", "day"]), clock.now(), ask.cluster))
            teams, days = (statement(costs, month, [by], clock.now()) for by in ("team", "day"))
            numbers = indicators(month_used(ledger, month, ask.cluster), month_starts(ledger, month, ask.cluster))
        finally:
            ledger.close()
    except (InvalidConfiguration, UnknownMonth, LedgerError) as error:
        exits.complain(*str(error).splitlines())
        return exits.ERROR
    sys.stdout.write(plain_block(_RENDERERS[output](numbers, teams, days)))
    return exits.OK
