"""The law of the books: what the agent has written down as spent is what the cloud charges."""

import json

from agent.simulation.laws.facts import Facts, Law
from providers.sim.machines import LedgerEntry

SHARE = 0.01
LEAST_USD = 0.5
"""Differences below this come from when a listing saw a machine go."""
BOOKS = "muster-books"


class BooksAgree(Law):
    """In the end the books are within 1 % of the cloud's ledger."""

    name = "books agree"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def ended(self) -> None:
        """Compare the totals."""
        kept = next((it for (_, name), it in self._facts.tables["ConfigMap"].items() if name == BOOKS), None)
        said = json.loads(kept["data"]["books.json"])["total"] / 1e6 if kept else 0.0
        charged = sum(entry.cost_usd for entry in self._facts.sim.cloud.ledger())
        if abs(said - charged) > max(SHARE * charged, LEAST_USD):
            by_launch = sum(self._at_launch_price(entry) for entry in self._facts.sim.cloud.ledger())
            words = f"the books say {said:.2f} USD, the cloud charges {charged:.2f} ({by_launch:.2f} at launch prices)"
            self._facts.broken(self.name, "the fleet", words)

    def _at_launch_price(self, entry: LedgerEntry) -> float:
        ended_s = self._facts.sim.now_s if entry.ended_at_s is None else entry.ended_at_s
        return (entry.price_usd_h or 0.0) * (ended_s - entry.launched_at_s) / 3600.0
