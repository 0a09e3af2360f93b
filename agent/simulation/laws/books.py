"""The law of the books: what the agent has written down as spent is what the cloud charges."""

import json
from math import inf
from typing import NamedTuple

from agent.simulation.laws.facts import Facts, Law
from providers.sim.machines import LedgerEntry
from providers.sim.store import StoreEvent

SHARE = 0.01
LEAST_USD = 0.5
"""Differences below this come from when a listing saw a machine go."""
REFRESH_S = 3600.0
"""Prices are read that often: what is charged now may be in the books at the price of so long ago."""
SEEN_S = 90.0
"""The books are saved once a minute, and looked at every few seconds."""
LISTED_S = 3300.0
"""So long after its end the cloud tells of a machine, less what an agent takes to ask."""
BOOKS = "muster-books"


class _Charged(NamedTuple):
    usd: float
    least_usd: float
    most_usd: float
    """With prices known up to `REFRESH_S` late, and of a silence those at its end."""


class BooksAgree(Law):
    """In the end the books are within 1 % of the cloud's ledger, at the prices that the agent could know."""

    name = "books agree"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._saved_at_s = 0.0
        self._silences: list[tuple[float, float]] = []
        """From when to when no agent could bill: what ended meanwhile may be forgotten by the cloud."""

    def looked(self) -> None:
        """Note whether an agent bills."""
        now_s, able = self._facts.sim.now_s, self._facts.sim.able
        if self._silences and self._silences[-1][1] == inf:
            if able:
                self._silences[-1] = (self._silences[-1][0], now_s)
        elif not able:
            self._silences.append((now_s - SEEN_S, inf))

    def changed(self, event: StoreEvent) -> None:
        """Note when the books were last saved."""
        if event.resource.kind == "ConfigMap" and event.object["metadata"]["name"] == BOOKS:
            self._saved_at_s = self._facts.sim.now_s

    def ended(self) -> None:
        """Compare the totals."""
        kept = next((it for (_, name), it in self._facts.tables["ConfigMap"].items() if name == BOOKS), None)
        said = json.loads(kept["data"]["books.json"])["total"] / 1e6 if kept else 0.0
        charged = [self._charged(entry) for entry in self._facts.sim.cloud.ledger()]
        usd, least_usd, most_usd = (sum(amounts) for amounts in zip(*charged, strict=True)) if charged else (0.0,) * 3
        slack_usd = max(SHARE * usd, LEAST_USD)
        if not least_usd - slack_usd <= said <= most_usd + slack_usd:
            prices = f"{least_usd:.2f} to {most_usd:.2f} at prices of the hour before"
            words = f"the books say {said:.2f} USD, the cloud charges {usd:.2f} ({prices})"
            self._facts.broken(self.name, "the fleet", words)

    def _charged(self, entry: LedgerEntry) -> _Charged:
        """What a machine had cost when the books were saved."""
        cost_usd, at_s = self._facts.sim.market.cost_usd, entry.launched_at_s
        end_s = min(self._saved_at_s, self._saved_at_s if entry.ended_at_s is None else entry.ended_at_s)
        unseen = ((begin_s, over_s - end_s) for begin_s, over_s in self._silences if begin_s < end_s <= over_s)
        found_s = next((begin_s for begin_s, ago_s in unseen if ago_s > LISTED_S), end_s)
        usd = least_usd = most_usd = 0.0
        while at_s < end_s:  # period by period, as prices change on the hour
            begun_s, until_s = at_s, min(end_s, (at_s // REFRESH_S + 1) * REFRESH_S)
            now_usd = cost_usd(entry.pool, at_s, until_s)
            late_usd = cost_usd(entry.pool, at_s - REFRESH_S, until_s - REFRESH_S)
            heard_s = next((over_s for begin_s, over_s in self._silences if begin_s <= at_s < over_s < inf), at_s)
            then_usd = cost_usd(entry.pool, heard_s, heard_s + until_s - at_s)
            usd, at_s = usd + now_usd, until_s
            known = (now_usd, late_usd, then_usd)
            least_usd += min(known) * max(0.0, min(until_s, found_s) - begun_s) / (until_s - begun_s)
            most_usd += max(known)
        return _Charged(usd, least_usd, most_usd)
