"""The law of the books: what the agent has written down as spent is what the cloud charges."""

import json

from agent.simulation.laws.facts import Facts, Law
from providers.sim.machines import LedgerEntry
from providers.sim.store import StoreEvent

SHARE = 0.01
LEAST_USD = 0.5
"""Differences below this come from when a listing saw a machine go."""
BOOKS = "muster-books"


class BooksAgree(Law):
    """In the end the books are within 1 % of the cloud's ledger."""

    name = "books agree"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._charged_usd = 0.0
        """By the cloud, when the books were last saved."""

    def changed(self, event: StoreEvent) -> None:
        """Read the ledger whenever the books are saved."""
        if event.resource.kind == "ConfigMap" and event.object["metadata"]["name"] == BOOKS:
            self._charged_usd = sum(entry.cost_usd for entry in self._facts.sim.cloud.ledger())

    def ended(self) -> None:
        """Compare the totals."""
        kept = next((it for (_, name), it in self._facts.tables["ConfigMap"].items() if name == BOOKS), None)
        said = json.loads(kept["data"]["books.json"])["total"] / 1e6 if kept else 0.0
        charged = self._charged_usd
        if abs(said - charged) > max(SHARE * charged, LEAST_USD):
            by_launch = sum(self._at_launch_price(entry) for entry in self._facts.sim.cloud.ledger())
            words = f"the books say {said:.2f} USD, the cloud charges {charged:.2f} ({by_launch:.2f} at launch prices)"
            self._facts.broken(self.name, "the fleet", words)

    def _at_launch_price(self, entry: LedgerEntry) -> float:
        ended_s = self._facts.sim.now_s if entry.ended_at_s is None else entry.ended_at_s
        return (entry.price_usd_h or 0.0) * (ended_s - entry.launched_at_s) / 3600.0
