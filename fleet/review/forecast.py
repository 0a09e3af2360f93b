"""The forecast in a pull request's comment: the last days again, under the fleet in force and under the proposed one.

It comes after the plan and is kept with it as long as head and base are those it was made of; its marker says which.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from fleet.replay.outcome import QueueOutcome
from fleet.replay.render import amount, waited
from model.plain_text import counted, markdown, plain

QUEUES_MOST: Final = 25
"""Queues that are shown: those with most gangs; the others are counted, and are in the last row."""
_NAME_MOST: Final = 63
_COLUMNS: Final = ("queue", "gangs", "wait p50", "wait p95", "GPU-hours", "evictions")
_FOUND: Final = re.compile(
    r"<!-- muster-forecast head=(?P<head>[0-9a-f]{40,64}) base=(?P<base>[0-9a-f]{40,64}) -->\n.*?\n"
    r"<!-- /muster-forecast -->",
    re.DOTALL,
)
_LEFT_OUT: Final = (
    "A forecast, no promise: it begins without machines, and knows no interruptions, failures or prices that change. "
    "A gang that never started counts with the wait it had at the end."
)


@dataclass(frozen=True, slots=True)
class ForecastSide:
    """What one of the two fleets did with the work."""

    queues: tuple[QueueOutcome, ...]
    total: QueueOutcome
    usd: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The work of the last days under the fleet in force, and under the proposed one."""

    before: ForecastSide
    after: ForecastSide
    homeless: int = 0
    """Gangs of queues that neither fleet declares; they are left out."""


def forecast_block(head: str, base: str, days: float, found: Forecast | str) -> str:
    """Returns what a section shows of a forecast, folded; of one that was not made, why not (one sentence)."""
    told = _sentence(found) if isinstance(found, str) else "\n\n".join(_told(found))
    span = "the last day" if days == 1 else f"the last {days:g} days"
    harmless = told.replace("<!--", "<!-\u200b-")
    title = f"<details><summary>Forecast: {span} again</summary>"
    begins, ends = f"<!-- muster-forecast head={head} base={base} -->", "<!-- /muster-forecast -->"
    return f"{begins}\n{title}\n\n{harmless}\n\n</details>\n{ends}"


def forecast_in(section: str, head: str, base: str) -> str:
    """Returns the forecast of this head and base in a section; empty where there is none."""
    found = _FOUND.search(section)
    return found[0] if found and (found["head"], found["base"]) == (head, base) else ""


def without_forecast(section: str) -> str:
    """Returns a section without the forecast in it."""
    return re.sub(r"\n{3,}", "\n\n", _FOUND.sub("", section))


def _sentence(words: str) -> str:
    return markdown(plain(words)[:500])


def _told(found: Forecast) -> Iterator[str]:
    before = {it.queue: it for it in found.before.queues}
    after = {it.queue: it for it in found.after.queues}
    busiest = sorted(before.keys() & after.keys(), key=lambda it: (-before[it].gangs, it))
    rows = [_row(_name(it), before[it], after[it]) for it in busiest[:QUEUES_MOST]]
    rows.append(_row("all", found.before.total, found.after.total))
    head = [_line(_COLUMNS), _line(["---", *("---:" for _ in _COLUMNS[1:])])]
    yield "\n".join([*head, *map(_line, rows)])
    yield f"USD: {_change(found.before.usd, found.after.usd, amount)}"
    if (more := len(busiest) - QUEUES_MOST) > 0:
        yield f"{counted(more, 'more queue')} with fewer gangs."
    if found.homeless:
        yield f"{counted(found.homeless, 'gang')} of queues that neither fleet declares: left out."
    yield _LEFT_OUT


def _row(name: str, before: QueueOutcome, after: QueueOutcome) -> list[str]:
    return [
        name,
        f"{before.gangs:,}",
        _change(before.wait_p50_s, after.wait_p50_s, waited),
        _change(before.wait_p95_s, after.wait_p95_s, waited),
        _change(before.gpu_h, after.gpu_h, amount),
        _change(before.evictions, after.evictions, "{:,}".format),
    ]


def _change(before: float, after: float, shown: Callable[[float], str]) -> str:
    """Returns both, or one where they read the same."""
    both = shown(before), shown(after)
    return both[0] if both[0] == both[1] else f"{both[0]} -> {both[1]}"


def _name(queue: str) -> str:
    return markdown(plain(queue)[:_NAME_MOST]).replace("|", "\\|")


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
