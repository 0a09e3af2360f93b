"""Budgets of teams: who has come so near to the end of one that somebody should be told, before work waits."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from model.fleet import Fleet

LEVELS: Final = (50, 80, 100)
"""Percent of a budget at which somebody is told; at the last one work waits."""


class BudgetNews(NamedTuple):
    """A `BudgetNews` is that a team's spending has reached a level of its budget, or is below all of them again."""

    team: str
    level: int
    """Percent; 0 = below the first level, in a new month or since the budget was raised."""
    spent_usd: float
    budget_usd: float
    month: str

    @property
    def reason(self) -> str:
        """Returns the reason of the event, in one word."""
        return {0: "BudgetAvailable", LEVELS[-1]: "BudgetSpent"}.get(self.level, "BudgetNearlySpent")

    @property
    def message(self) -> str:
        """Returns the sentence."""
        used = self.spent_usd / self.budget_usd
        told = f"team {self.team!r} has spent {self.spent_usd:.2f} of its {self.budget_usd:.2f} USD of {self.month}"
        waits = "; its work waits until the month ends or the budget is raised" if self.level == LEVELS[-1] else ""
        return f"{told} ({used:.0%}){waits}"


def budget_news(
    fleet: Fleet, spent_usd: Mapping[str, float], month: str, told: Mapping[str, int]
) -> tuple[Sequence[BudgetNews], Mapping[str, int]]:
    """Returns what is new of teams with a budget, by name, and the level of each to remember; `told` has the last ones.

    A level that is passed on the way to a higher one is not told of. That spending is below all levels is told only to
    who was warned at the second: an incident is over.
    """
    news, levels = [], {}
    for name, team in sorted(fleet.teams.items()):
        if team.spec.budget is None:
            continue
        most, spent, before = team.spec.budget.usd_per_month, spent_usd.get(name, 0.0), told.get(name, 0)
        level = max((it for it in LEVELS if spent * 100 >= most * it), default=0)
        if level > before or (not level and before > LEVELS[0]):
            news.append(BudgetNews(name, level, spent, most, month))
        if level:
            levels[name] = level
    return news, levels
