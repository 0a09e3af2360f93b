"""The books: what every team has spent this month (UTC), kept in a ConfigMap so that budgets outlive a crash."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent.watch import Watcher
from fleet.cost.allocation import MICRO, Bill, allocate
from fleet.snapshot import Snapshot
from model.fleet import Fleet

LONGEST_GAP_S = 3600.0
"""A silence (the agent was down) is charged by the world as found; a longer one is not: who knows what ran."""


@dataclass(slots=True)
class Accounts:
    """Adds up bills. `spent_usd` is what budgets are judged by."""

    month: str = ""
    bill: Bill = field(default_factory=Bill)
    _until_s: float = 0.0

    def charge(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Bill the time since the last call; a new month starts from nothing."""
        now = snapshot.now_s
        month = datetime.fromtimestamp(now, UTC).strftime("%Y-%m")
        if month != self.month:
            self.month, self.bill = month, Bill()
        elapsed_s = now - self._until_s
        if self._until_s and 0 < elapsed_s <= LONGEST_GAP_S:
            self.bill = self.bill.plus(allocate(fleet, snapshot, elapsed_s))
        self._until_s = now

    @property
    def spent_usd(self) -> dict[str, float]:
        """USD by team this month."""
        return {team: amount / MICRO for team, amount in sorted(self.bill.by_team.items())}

    def dump(self) -> str:
        """What is kept, as text."""
        return json.dumps(
            {
                "month": self.month,
                "total": self.bill.total,
                "by_team": dict(self.bill.by_team),
                "until_s": self._until_s,
            }
        )

    def restore(self, text: str) -> None:
        """Continue from what was kept; raises ValueError for anything else."""
        kept: Any = json.loads(text)
        try:
            by_team = {str(team): int(amount) for team, amount in kept["by_team"].items()}
            month, total = str(kept["month"]), int(kept["total"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"these are no books: {error!r}") from error
        if sum(by_team.values()) != total:
            raise ValueError("the kept books do not add up")
        self.month, self.bill = month, Bill(total, by_team)
        self._until_s = float(kept.get("until_s", 0.0))


class Bookkeeper(Watcher):
    """Watches the brain's turns and saves the books now and then."""

    def __init__(self, accounts: Accounts, save: Callable[[str], None], every_s: float = 5.0) -> None:
        self.accounts = accounts
        self._save = save
        self._every_s = every_s
        self._saved_at_s = 0.0
        self._charged_at_s = 0.0

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Charge once a second, save now and then."""
        if snapshot.now_s - self._charged_at_s >= 1.0:
            self._charged_at_s = snapshot.now_s
            self.accounts.charge(fleet, snapshot)
        if snapshot.now_s - self._saved_at_s >= self._every_s:
            self._saved_at_s = snapshot.now_s
            self._save(self.accounts.dump())
