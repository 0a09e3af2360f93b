"""Decayed usage of local queues: who had much lately goes later (Kueue's admission fair sharing; reference 3.6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model.quantity import Resources


def weighted(consumed: Mapping[str, float], queue_weight: float, resource_weights: Mapping[str, float]) -> float:
    """The number that orders local queues, in natural units; a queue without weight comes after all others."""
    if queue_weight <= 0:
        return float("inf")
    return (
        sum(resource_weights.get(name, 1.0) * _natural(name, value) for name, value in consumed.items()) / queue_weight
    )


def _natural(resource: str, amount: float) -> float:
    """Cores for cpu, bytes and devices for the rest."""
    return amount / 1000.0 if resource == "cpu" else amount


def forgotten_share(elapsed_s: float, half_life_s: float) -> float:
    """The share of the past that `elapsed_s` forgets; all of it without a half life."""
    return 1.0 - 0.5 ** (elapsed_s / half_life_s) if half_life_s > 0 else 1.0


@dataclass(frozen=True, slots=True)
class UsageDecay:
    """How use is remembered and weighed, for all local queues alike."""

    half_life_s: float
    sampling_s: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """Resource -> what a core, byte or device counts; 1 where it is not named."""


@dataclass(frozen=True, slots=True)
class LocalQueueUsage:
    """What one local queue used lately."""

    consumed: Mapping[str, float] = field(default_factory=dict)
    """Resource -> decayed usage, canonical amounts."""
    at_s: float = 0.0
    """When `consumed` was last brought up to date."""
    penalty: Mapping[str, float] = field(default_factory=dict)
    """Admitted since the last sample: counts at once, until the sample has it."""

    def sampled(self, usage: Resources, now_s: float, half_life_s: float) -> "LocalQueueUsage":
        """Decayed to now, with the present usage mixed in; what was counted ahead is in it."""
        share = forgotten_share(max(0.0, now_s - self.at_s), half_life_s)
        names = {*self.consumed, *usage}
        mixed = {
            name: (1 - share) * self.consumed.get(name, 0.0) + share * usage.get(name, 0) for name in sorted(names)
        }
        return LocalQueueUsage(mixed, now_s)

    def admitted(self, requests: Resources, sampling_s: float, half_life_s: float) -> "LocalQueueUsage":
        """A workload was admitted: its share of one sampling interval counts from now on."""
        if half_life_s <= 0:
            return self
        share = forgotten_share(sampling_s, half_life_s)
        names = {*self.penalty, *requests}
        return replace(self, penalty={n: self.penalty.get(n, 0.0) + share * requests.get(n, 0) for n in sorted(names)})

    def total(self) -> dict[str, float]:
        """What counts, by resource: decayed usage and what was counted ahead."""
        names = sorted({*self.consumed, *self.penalty})
        return {name: self.consumed.get(name, 0.0) + self.penalty.get(name, 0.0) for name in names}

    def value(self, queue_weight: float, resource_weights: Mapping[str, float]) -> float:
        """The number that orders it."""
        return weighted(self.total(), queue_weight, resource_weights)

    def without(self, least: float) -> "LocalQueueUsage":
        """Rid of resources of which less than this is left."""
        return replace(self, consumed={name: amount for name, amount in self.consumed.items() if amount >= least})


@dataclass(slots=True)
class UsageLedger:
    """The accounts while decisions are made: admissions count for those that follow."""

    terms: UsageDecay
    accounts: dict[str, LocalQueueUsage]
    weights: Mapping[str, float] = field(default_factory=dict)
    """Local queue -> its weight; 1 where it is not named."""

    def value(self, local_queue: str) -> float:
        """The number that orders a local queue."""
        account, weight = self.accounts.get(local_queue, LocalQueueUsage()), self.weights.get(local_queue, 1.0)
        return account.value(weight, self.terms.resource_weights)

    def values(self) -> dict[str, float]:
        """Of every local queue with an account or a weight; all others have 0."""
        return {local_queue: self.value(local_queue) for local_queue in sorted({*self.accounts, *self.weights})}

    def admit(self, local_queue: str, requests: Resources) -> float:
        """A workload of the local queue was admitted; the number that orders it from now on."""
        account = self.accounts.get(local_queue, LocalQueueUsage())
        self.accounts[local_queue] = account.admitted(requests, self.terms.sampling_s, self.terms.half_life_s)
        return self.value(local_queue)
