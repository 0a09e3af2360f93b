"""The questions that both stores' engines answer, SQLite and DuckDB: the words are SQL that both understand.

They are asked of one cluster's day at a time: what is sorted or kept in memory meanwhile is a day's at most.
"""

from collections.abc import Sequence
from typing import Final

from fleet.cost.machine_use import NOBODY, NOT_READY
from fleet.cost.sums import ADDED, APART
from fleet.reasons import Reason

DAY_S: Final = 86_400.0
_NOBODY: Final = ", ".join(f"'{name}'" for name in sorted(NOBODY))
SUM_FIELDS: Final = ("subject", "hour_s", "priced_at_s", *APART, *ADDED)
"""Columns that every question for sums reads, beside those that it is to tell apart."""
USED_FIELDS: Final = (
    *("cluster", "hour_s", "machine", "subject", "gpu", "capacity_type", "held_s", "gpu_s", "cost_micro_usd"),
    *("lost_s", "lost_micro_usd", "ended"),
)
"""Columns that `used_sql` and `evictions_sql` read."""


def sums_sql(by: Sequence[str], where: str) -> str:
    """Returns the question for records summed up by these fields; `where` names the rows: `FROM ... WHERE ...`."""
    apart = ", ".join((*APART, *by))
    numbers = ", ".join(str(n + 1) for n in range(len(APART) + len(by) + 1))
    return (
        f"SELECT {apart}, CASE WHEN subject IN ({_NOBODY}) THEN subject ELSE '' END, min(hour_s), "
        f"{', '.join(f'sum({name})' for name in ADDED)}, max(hour_s - priced_at_s) {where} "
        f"GROUP BY {numbers} ORDER BY {numbers}"
    )


def used_sql(where: str) -> str:
    """Returns the question for machines' hours, by GPU model and capacity type: the fields of `UsedHours` but one."""
    return f"""
WITH machine_hours AS (
  SELECT cluster, hour_s, machine, max(gpu) AS gpu, max(capacity_type) AS capacity_type, max(held_s) AS held_s,
    sum(cost_micro_usd) AS cost, sum(gpu_s) AS paid,
    sum(CASE WHEN subject IN ({_NOBODY}) THEN 0.0 ELSE gpu_s END) AS used,
    sum(CASE WHEN subject = '{NOT_READY}' THEN gpu_s ELSE 0.0 END) AS broken,
    sum(CASE WHEN lost_s > 0 AND held_s > 0 THEN lost_s * gpu_s / held_s ELSE 0.0 END) AS lost,
    sum(CASE WHEN lost_s > 0 THEN lost_micro_usd ELSE 0 END) AS lost_cost,
    max(CASE WHEN ended = '{Reason.INTERRUPTED}' THEN 1 ELSE 0 END) AS taken
  {where} GROUP BY cluster, hour_s, machine)
SELECT gpu, capacity_type, sum(cost), sum(held_s) / 3600, sum(paid), sum(used), sum(broken),
  sum(CASE WHEN used > 0 THEN paid - used - broken ELSE 0.0 END), sum(lost), sum(lost_cost), sum(taken)
FROM machine_hours GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - our own columns and words


def evictions_sql(where: str) -> str:
    """Returns the question for how many subjects lost work, each hour once; `where` may go on with `AND`."""
    return f"SELECT count(*) FROM (SELECT DISTINCT cluster, hour_s, subject {where} AND lost_s > 0) AS lost"  # noqa: S608
