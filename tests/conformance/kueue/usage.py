"""Usage-based fair sharing in cases: what local queues had lately, and what admissions add to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.quota.admission_fair_sharing import LocalQueueUsage
from fleet.quota.ledger import AdmittedWorkload
from tests.conformance.cases import Case
from tests.conformance.kueue.topology import gates_of

HALF_LIFE_S, SAMPLING_S = 0.0, 300.0
"""What holds where a case does not say."""


@dataclass(slots=True)
class LocalUsage:
    """The accounts of local queues while a case is played. Time stands still: no sample is ever taken."""

    half_life_s: float
    sampling_s: float
    resource_weights: Mapping[str, float]
    weights: Mapping[str, float]
    """Local queue -> its weight."""
    accounts: dict[str, LocalQueueUsage] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case) -> "LocalUsage | None":
        """None where the case does not configure it, or switches it off."""
        config = case["config"].get("admission_fair_sharing")
        if config is None or gates_of(case).get("AdmissionFairSharing") is False:
            return None
        gone = case.get("deleted_local_queue")
        weights = {
            name_of(local["namespace"], local["name"]): float(_or_one(local.get("fair_weight")))
            for local in case.get("local_queues", ())
            if gone not in {local["name"], name_of(local["namespace"], local["name"])}
        }
        found = cls(
            float(config.get("half_life_s") or HALF_LIFE_S),
            float(config.get("sampling_s") or SAMPLING_S),
            config.get("resource_weights") or {},
            weights,
        )
        for name, usage in (case.get("initial_usage") or {}).items():
            named = [local for local in weights if name in {local, local.split("/")[1]}]
            if not named and gone not in {name, name.split("/")[-1]}:
                weights[name], named = 1.0, [name]
            found.accounts |= {local: LocalQueueUsage(usage) for local in named}
        return found

    def count(self, admitted: Iterable[AdmittedWorkload]) -> None:
        """Admissions count at once, before the next sample has them."""
        for holder in admitted:
            local = holder.workload.local_queue
            requests: dict[str, int] = {}
            for given in holder.given:
                for resource, amount in given.amounts.items():
                    requests[resource] = requests.get(resource, 0) + amount
            account = self.accounts.get(local, LocalQueueUsage())
            self.accounts[local] = account.admitted(requests, self.sampling_s, self.half_life_s)

    def values(self) -> dict[str, float]:
        """Local queue -> the number that orders it."""
        return {
            local: self.accounts.get(local, LocalQueueUsage()).value(weight, self.resource_weights)
            for local, weight in self.weights.items()
        }


def name_of(namespace: str, name: str) -> str:
    """How a local queue is written as one name."""
    return f"{namespace}/{name}"


def _or_one(weight: Any) -> Any:
    return 1 if weight is None else weight
