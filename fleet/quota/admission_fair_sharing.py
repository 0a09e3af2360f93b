"""Computes Kueue's admission fair sharing: the recent usage of local queues, and the number that orders them (3.6).

A *local queue* is `namespace/queue`, by the queue that jobs name: a LocalQueue of Kueue, or one namespace in a Queue of
ours. Usage of admitted gangs is sampled and decays by a half-life; an admission counts at once, as much as one sampling
interval of it, until the next sample contains it (Kueue's entry penalty).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.quota.build_tree import QuotaSpecs, current_quota_specs, usages
from fleet.quota.queue_binding import binding_of
from fleet.quota.specs import FlavorResource
from fleet.snapshot import Gang, Snapshot
from fleet.snapshot.elastic_parts import parts
from fleet.snapshot.lookups import holders
from model.fleet import Fleet
from model.index import Index, derived
from model.quantity import Resources

FORGOTTEN = 1e-6
"""Smaller amounts of a resource (a millicore, a byte, a device) are dropped, so that records do not pile up."""


@dataclass(frozen=True, slots=True)
class UsageDecay:
    """A `UsageDecay` is the half-life of local queues' usage, how often it is sampled, and the weights of resources."""

    half_life_s: float
    sampling_s: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """Resource -> what a core, byte or device counts; 1 where it is not named."""


@dataclass(frozen=True, slots=True)
class LocalQueueUsage:
    """A `LocalQueueUsage` is the decayed usage of one local queue, and what was admitted since the last sample."""

    consumed: Mapping[str, float] = field(default_factory=dict)
    """Resource -> decayed usage, canonical amounts."""
    at_s: float = 0.0
    """When `consumed` was last brought up to date."""
    penalty: Mapping[str, float] = field(default_factory=dict)
    """Resource -> amount admitted since the last sample, which counts until the next sample has it."""

    def sampled(self, usage: Resources, now_s: float, half_life_s: float) -> "LocalQueueUsage":
        """Returns the usage decayed to now and mixed with present usage, without penalties."""
        share = forgotten_share(max(0.0, now_s - self.at_s), half_life_s)
        names = {*self.consumed, *usage}
        mixed = {
            name: (1 - share) * self.consumed.get(name, 0.0) + share * usage.get(name, 0) for name in sorted(names)
        }
        return LocalQueueUsage(mixed, now_s)

    def admitted(self, requests: Resources, sampling_s: float, half_life_s: float) -> "LocalQueueUsage":
        """Returns the usage with the penalty of an admission: the weight of one sampling interval of it."""
        if half_life_s <= 0:
            return self
        share = forgotten_share(sampling_s, half_life_s)
        names = {*self.penalty, *requests}
        return replace(self, penalty={n: self.penalty.get(n, 0.0) + share * requests.get(n, 0) for n in sorted(names)})

    def total(self) -> dict[str, float]:
        """Returns resource -> decayed usage and penalty."""
        names = sorted({*self.consumed, *self.penalty})
        return {name: self.consumed.get(name, 0.0) + self.penalty.get(name, 0.0) for name in names}

    def value(self, queue_weight: float, resource_weights: Mapping[str, float]) -> float:
        """Returns the number by which the local queue is ordered: lower goes first."""
        return weighted(self.total(), queue_weight, resource_weights)

    def without(self, least: float) -> "LocalQueueUsage":
        """Returns the usage without resources of which less than this is left."""
        return replace(self, consumed={name: amount for name, amount in self.consumed.items() if amount >= least})


def forgotten_share(elapsed_s: float, half_life_s: float) -> float:
    """Returns the share (0 to 1) of past usage that is forgotten after `elapsed_s`; all without a half-life."""
    return 1.0 - 0.5 ** (elapsed_s / half_life_s) if half_life_s > 0 else 1.0


def weighted(consumed: Mapping[str, float], queue_weight: float, resource_weights: Mapping[str, float]) -> float:
    """Returns usage in natural units times the resources' weights, divided by the queue's weight; inf for weight 0."""
    if queue_weight <= 0:
        return float("inf")
    return (
        sum(resource_weights.get(name, 1.0) * _natural(name, value) for name, value in consumed.items()) / queue_weight
    )


def _natural(resource: str, amount: float) -> float:
    """Returns an amount in natural units: cores for cpu, bytes and devices for the rest."""
    return amount / 1000.0 if resource == "cpu" else amount


@dataclass(slots=True)
class UsageLedger:
    """A `UsageLedger` is the usage of local queues while decisions are made: each admission counts for the next."""

    decay: UsageDecay
    accounts: dict[str, LocalQueueUsage]
    weights: Mapping[str, float] = field(default_factory=dict)
    """Local queue -> its weight; 1 where it is not named."""

    def value(self, local_queue: str) -> float:
        """Returns the number by which a local queue is ordered: lower goes first."""
        account, weight = self.accounts.get(local_queue, LocalQueueUsage()), self.weights.get(local_queue, 1.0)
        return account.value(weight, self.decay.resource_weights)

    def values(self) -> dict[str, float]:
        """Returns local queue -> the number that orders it, of those with usage or a weight; all others have 0."""
        return {local_queue: self.value(local_queue) for local_queue in sorted({*self.accounts, *self.weights})}

    def admit(self, local_queue: str, requests: Resources) -> float:
        """Counts an admission for the local queue, and returns the number that orders the queue from now on."""
        account = self.accounts.get(local_queue, LocalQueueUsage())
        self.accounts[local_queue] = account.admitted(requests, self.decay.sampling_s, self.decay.half_life_s)
        return self.value(local_queue)


def usage_ledger(fleet: Fleet, snapshot: Snapshot) -> UsageLedger | None:
    """Returns the usages that order local queues now; None where the fleet declares no admission fair sharing."""
    decay = usage_decay(fleet)
    if decay is None:
        return None
    accounts = {local: LocalQueueUsage(used) for local, used in snapshot.local_usage.items()}
    return UsageLedger(decay, accounts, local_queue_weights(fleet))


def usage_order_values(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, float]:
    """Returns local queue -> the number that orders it, for queues ordered by usage; 0 where nothing was used."""
    ledger = usage_ledger(fleet, snapshot)
    if ledger is None:
        return {}
    specs = current_quota_specs(fleet, snapshot)
    return {local: value for local, value in ledger.values().items() if _ordered(fleet, specs, *local.split("/", 1))}


def local_queue_of(gang: Gang) -> str:
    """Returns the local queue that the gang's usage counts for."""
    return f"{gang.namespace}/{gang.queue}"


def usage_decay(fleet: Fleet) -> UsageDecay | None:
    """Returns how usage is sampled and forgotten; None where the fleet declares no admission fair sharing."""
    declared = fleet.policy.spec.admission_fair_sharing
    if declared is None:
        return None
    return UsageDecay(declared.usage_half_life_time, declared.usage_sampling_interval, dict(declared.resource_weights))


def local_queue_weights(fleet: Fleet) -> Mapping[str, float]:
    """Returns local queue -> its weight, where one is written."""
    return _local_queue_weights(fleet.index, fleet)


@derived()
def _local_queue_weights(_index: Index, fleet: Fleet) -> Mapping[str, float]:
    found = {key: local.spec.fair_sharing.weight for key, local in fleet.local_queues.items()}
    for queue in fleet.queues.values():
        sharing = queue.spec.admission_fair_sharing
        for namespace, weight in sharing.namespace_weights.items() if sharing else ():
            found[f"{namespace}/{queue.name}"] = weight
    return found


def _ordered(fleet: Fleet, specs: QuotaSpecs, namespace: str, queue: str) -> bool:
    """Returns whether usage orders the queue that jobs of this namespace reach by this name."""
    binding = binding_of(fleet, namespace, queue)
    return binding is not None and specs.queues[binding.name].usage_ordered


class GangAdmission(NamedTuple):
    """A `GangAdmission` is the instant (epoch seconds) at which a gang got quota."""

    uid: str
    at_s: float


@dataclass(frozen=True, slots=True)
class UsageSample:
    """A `UsageSample` is the usage of all local queues at one sample, with what was admitted since."""

    accounts: Mapping[str, LocalQueueUsage] = field(default_factory=dict)
    at_s: float = 0.0
    """When the last sample of all local queues was taken (epoch seconds); 0 = none yet."""
    ahead: frozenset[GangAdmission] = frozenset()
    """Admissions that count already: as penalties, or because the sample has them."""

    def used(self) -> dict[str, dict[str, float]]:
        """Returns local queue -> resource -> decayed usage and penalty."""
        return {local: account.total() for local, account in sorted(self.accounts.items())}


class _GangUsage(NamedTuple):
    """A `_GangUsage` is what one gang holds in a queue that is ordered by usage."""

    local_queue: str
    admission: GangAdmission
    amounts: Mapping[str, int]


def next_sample(fleet: Fleet, snapshot: Snapshot, before: UsageSample) -> UsageSample:
    """Returns the usages as of now: with a new sample when one is due, and with admissions since the last.

    The same object when nothing has changed; an empty one where the fleet declares no admission fair sharing. A clock
    that went back before the last sample takes a new one, which changes no amount.
    """
    decay = usage_decay(fleet)
    if decay is None:
        return before if before == UsageSample() else UsageSample()
    specs = current_quota_specs(fleet, snapshot)
    held = _gang_usages(snapshot.index, fleet, specs, holders(snapshot), usages(fleet, snapshot))
    now = snapshot.now_s
    if not before.at_s:
        return UsageSample({}, now, frozenset(it.admission for it in _since(held, now)))
    if not 0 <= now - before.at_s < decay.sampling_s:
        return _sampled(fleet, specs, held, before, now, decay)
    return _with_penalties(held, before, decay)


@derived()
def _gang_usages(
    _index: Index,
    fleet: Fleet,
    specs: QuotaSpecs,
    gangs: Sequence[Gang],
    taken: Mapping[str, Mapping[FlavorResource, int]],
) -> Sequence[_GangUsage]:
    """Returns what gangs hold in queues that usage orders, the newest admission first."""
    found = []
    for gang in gangs:
        if _ordered(fleet, specs, gang.namespace, gang.queue):
            amounts: dict[str, int] = {}
            for part in parts(gang):
                for cell, amount in taken[part.uid].items():
                    amounts[cell.resource] = amounts.get(cell.resource, 0) + amount
            found.append(_GangUsage(local_queue_of(gang), GangAdmission(gang.uid, gang.quota_reserved_at_s), amounts))
    return sorted(found, key=lambda it: (-it.admission.at_s, it.admission.uid))


def _since(held: Sequence[_GangUsage], at_s: float) -> Iterator[_GangUsage]:
    """Yields the usages of gangs that were admitted at an instant or later."""
    for it in held:
        if it.admission.at_s < at_s:
            return
        yield it


def _sampled(
    fleet: Fleet, specs: QuotaSpecs, held: Sequence[_GangUsage], before: UsageSample, now_s: float, decay: UsageDecay
) -> UsageSample:
    """Returns a new sample of the usage of all local queues."""
    usage: dict[str, dict[str, int]] = {}
    for it in held:
        total = usage.setdefault(it.local_queue, {})
        for resource, amount in it.amounts.items():
            total[resource] = total.get(resource, 0) + amount
    accounts = {}
    for local in sorted({*before.accounts, *usage}):
        account = before.accounts.get(local, LocalQueueUsage({}, before.at_s))
        sampled = account.sampled(usage.get(local, {}), now_s, decay.half_life_s).without(FORGOTTEN)
        if sampled.consumed and _ordered(fleet, specs, *local.split("/", 1)):
            accounts[local] = sampled
    return UsageSample(accounts, now_s, frozenset(it.admission for it in _since(held, now_s)))


def _with_penalties(held: Sequence[_GangUsage], before: UsageSample, decay: UsageDecay) -> UsageSample:
    """Returns the last sample with a penalty for each admission since (Kueue's entry penalty)."""
    fresh = [it for it in _since(held, before.at_s) if it.admission not in before.ahead]
    if not fresh:
        return before
    accounts = dict(before.accounts)
    for it in fresh:
        account = accounts.get(it.local_queue, LocalQueueUsage({}, before.at_s))
        accounts[it.local_queue] = account.admitted(it.amounts, decay.sampling_s, decay.half_life_s)
    return UsageSample(accounts, before.at_s, before.ahead | {it.admission for it in fresh})
