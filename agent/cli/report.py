"""`muster report`: a month in numbers for who leads the fleet, from the ledger."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.cli import exits
from agent.cli.cost import (
    CostRequest,
    NoLedger,
    known_until,
    ledger_of,
    month_of,
    month_starts,
    month_sums,
    month_to_come,
    month_used,
)
from fleet.cost.indicators import Indicators, indicators
from fleet.cost.report_text import report_html, report_json, report_table
from fleet.cost.statement import Statement, UnknownMonth, fields_of, statement
from model.plain_text import plain_block
from providers.clock import Clock
from providers.store.port import LedgerError

if TYPE_CHECKING:
    from agent.gang_answer import GpusAnswer

_RENDERERS: Final[Mapping[str, Callable[[Indicators, Statement, Statement], str]]] = {
    "table": report_table,
    "json": report_json,
    "html": report_html,
}


@dataclass(frozen=True, slots=True)
class UseSource:
    """Which agent is asked what GPUs are used for; an empty address is none."""

    agent: str = ""
    kubeconfig: Path | None = None
    context: str | None = None


def show_report(ask: CostRequest, output: str, clock: Clock, source: UseSource = UseSource()) -> int:
    """Print it, with what an agent knows of the use of GPUs where one is named; the exit code."""
    try:
        used = _used(source) if source.agent else None
        (open_ledger, _), month = ledger_of(ask), month_of(ask.month, clock)
        ledger = open_ledger()
        try:
            until_s = known_until(ledger, ask.cluster, clock.now())
            costs = list(month_sums(ledger, month, fields_of(["team", "day"]), ask.cluster))
            to_come = month_to_come(ledger, month, until_s, ask.cluster)
            days, teams = statement(costs, month, ["day"], until_s), statement(costs, month, ["team"], until_s, to_come)
            numbers = indicators(month_used(ledger, month, ask.cluster), month_starts(ledger, month, ask.cluster))
        finally:
            ledger.close()
    except (NoLedger, UnknownMonth, LedgerError, UseUnknown) as error:
        exits.complain(*str(error).splitlines())
        return exits.ERROR
    text = _RENDERERS[output](numbers, teams, days)
    sys.stdout.write(plain_block(text if used is None else _WITH_USE[output](text, used)))
    return exits.OK


class UseUnknown(Exception):
    """The agent that was named does not tell what GPUs are used for."""


def _used(source: UseSource) -> "GpusAnswer":
    """What the agent has kept. Errors: `UseUnknown`. A report that asks no agent imports none of this."""
    import msgspec

    from agent.cli.explain import NotAnswered, ask_agent
    from agent.gang_answer import GpusAnswer

    try:
        body = ask_agent(source.agent, "/api/gpus", source.kubeconfig, source.context)
        return msgspec.json.decode(body, type=GpusAnswer)
    except NotAnswered as error:
        raise UseUnknown(str(error)) from error
    except msgspec.MsgspecError as error:
        raise UseUnknown(f"{source.agent} answers what this version does not read: {error}") from error


_USE: Final = "What is made of GPUs now, by readings of the agent:"


def _use_rows(used: "GpusAnswer") -> Iterator[tuple[str, str]]:
    """Who would save most comes first, then who holds most."""
    from fleet.cost.sizing import advice_words, use_words

    for it in sorted(used.gangs, key=lambda it: (-it.use.saves_usd, -it.use.devices, it.name)):
        told = (use_words(it.use, used.at_s), advice_words(it.use), it.idle)
        yield it.name, "; ".join(words for words in told if words)


def _as_text(text: str, used: "GpusAnswer") -> str:
    rows = [f"  {name}: {words}" for name, words in _use_rows(used)]
    return text + "\n".join(("", _USE, *(rows or ["  nothing: there are no readings"]), ""))


def _as_json(text: str, used: "GpusAnswer") -> str:
    import msgspec

    return json.dumps({**json.loads(text), "gpuUse": msgspec.to_builtins(used.gangs)}, indent=2) + "\n"


def _as_html(text: str, used: "GpusAnswer") -> str:
    from model.page import html_table, safe

    section = f"<h2>{safe(_USE.rstrip(':'))}</h2>{html_table(('gang', 'use'), list(_use_rows(used)))}"
    return text.replace("</body>", f"{section}</body>", 1)


_WITH_USE: Final[Mapping[str, "Callable[[str, GpusAnswer], str]"]] = {
    "table": _as_text,
    "json": _as_json,
    "html": _as_html,
}
