"""The questions that both stores' engines answer, SQLite and DuckDB: the words are SQL that both understand.

They are asked of one cluster's day at a time: what is sorted or kept in memory meanwhile is a day's at most.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from fleet.cost.machine_use import NOBODY, NOT_READY
from fleet.cost.sums import ADDED, APART, UsedHours
from fleet.reasons import Reason

DAY_S: Final = 86_400.0
_NOBODY: Final = ", ".join(f"'{name}'" for name in sorted(NOBODY))
_APART: Final = tuple(name for name in APART if name != "cluster")
SUM_FIELDS: Final = ("subject", "hour_s", "priced_at_s", *_APART, *ADDED)
"""Columns that every question for sums reads, beside those that it is to tell apart."""
USED_FIELDS: Final = (
    *("hour_s", "machine", "subject", "gpu", "capacity_type", "held_s", "gpu_s", "cost_micro_usd"),
    *("lost_s", "lost_micro_usd", "ended"),
)
"""Columns that `used_on` asks for."""


def sums_sql(by: Sequence[str], where: str) -> str:
    """Returns the question for records summed up by these fields; `where` names the rows: `FROM ... WHERE ...`.

    Rows lack their cluster, which whoever asks knows. They are grouped first by what differs most.
    """
    apart = (*_APART, *by, f"CASE WHEN subject IN ({_NOBODY}) THEN subject ELSE '' END")
    numbers = [str(n + 1) for n in range(len(apart))]
    return (
        f"SELECT {', '.join(apart)}, min(hour_s), {', '.join(f'sum({name})' for name in ADDED)}, "
        f"max(hour_s - priced_at_s) {where} "
        f"GROUP BY {', '.join((*numbers[len(_APART) :], *numbers[: len(_APART)]))} ORDER BY {', '.join(numbers)}"
    )


def used_on(ask: Callable[[str], Iterable[Sequence[Any]]], where: str, any_of: str = "{}") -> Iterator[UsedHours]:
    """Yields what machines were used for by the rows that `where` names; it may go on with `AND`.

    `ask` asks the engine, and `any_of` is how it says "of any of the rows". What few records say is asked of these few:
    every column that is read of all takes its time, and so does every comparison.
    """
    for row in ask(_used_sql(where, any_of)):
        yield UsedHours(*row)
    lost = [
        UsedHours(gpu, of, lost_s=s, lost_micro_usd=usd, interruptions=n)
        for gpu, of, s, usd, n in ask(_lost_sql(where))
    ]
    yield from lost
    if lost:
        ((evictions,),) = ask(_evictions_sql(where))
        yield UsedHours(evictions=evictions)


def _used_sql(where: str, any_of: str) -> str:
    """Returns the question for machines' hours, by GPU model and capacity type: the first fields of `UsedHours`."""
    return f"""
WITH machine_hours AS (
  SELECT hour_s, machine, {any_of.format("gpu")} AS gpu, {any_of.format("capacity_type")} AS capacity_type,
    max(held_s) AS held_s, sum(cost_micro_usd) AS cost, sum(gpu_s) AS paid,
    sum(CASE WHEN subject IN ({_NOBODY}) THEN 0.0 ELSE gpu_s END) AS used,
    sum(CASE WHEN subject = '{NOT_READY}' THEN gpu_s ELSE 0.0 END) AS broken
  {where} GROUP BY hour_s, machine)
SELECT gpu, capacity_type, sum(cost), sum(held_s) / 3600, sum(paid), sum(used), sum(broken),
  sum(CASE WHEN used > 0 THEN paid - used - broken ELSE 0.0 END)
FROM machine_hours GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - our own columns and words


def _lost_sql(where: str) -> str:
    """Returns the question for what was lost of them, and how many were taken back."""
    return f"""
WITH machine_hours AS (
  SELECT hour_s, machine, max(gpu) AS gpu, max(capacity_type) AS capacity_type,
    sum(CASE WHEN lost_s > 0 AND held_s > 0 THEN lost_s * gpu_s / held_s ELSE 0.0 END) AS lost,
    sum(CASE WHEN lost_s > 0 THEN lost_micro_usd ELSE 0 END) AS lost_cost,
    max(CASE WHEN ended = '{Reason.INTERRUPTED}' THEN 1 ELSE 0 END) AS taken
  {where} AND (lost_s > 0 OR ended = '{Reason.INTERRUPTED}') GROUP BY hour_s, machine)
SELECT gpu, capacity_type, sum(lost), sum(lost_cost), sum(taken) FROM machine_hours GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - our own columns and words


def _evictions_sql(where: str) -> str:
    """Returns the question for how many subjects lost work, each hour once."""
    return f"SELECT count(*) FROM (SELECT DISTINCT hour_s, subject {where} AND lost_s > 0) AS lost"  # noqa: S608
