"""What local queues used lately: the accounts between decisions, and the ledger decisions are made with.

A *local queue* is `namespace/queue`, by the queue that jobs name: a LocalQueue of Kueue, or one namespace in a Queue of
ours. The rules are those of Kueue's admission fair sharing (reference 3.6): what admitted gangs hold is sampled and
forgotten by half lives, and an admission counts ahead, as much as one interval of it, until the sample has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.quota.compile import QuotaSpecs, current_quota_specs, usages
from fleet.quota.ledger import LocalQueueUsage, UsageDecay, UsageLedger
from fleet.quota.queue_binding import binding_of
from fleet.snapshot import Gang, Snapshot
from fleet.snapshot.elastic_parts import parts
from fleet.snapshot.lookups import holders
from fleet.snapshot.memo import remembered
from model.fleet import Fleet

FORGOTTEN = 1e-6
"""Less than this of a resource (a millicore, a byte, a device) is nothing: accounts do not pile up for ever."""


class GangAdmission(NamedTuple):
    """A gang that got quota, and when."""

    uid: str
    at_s: float


@dataclass(frozen=True, slots=True)
class UsageSample:
    """The accounts of all local queues at one sample, with what was admitted since."""

    accounts: Mapping[str, LocalQueueUsage] = field(default_factory=dict)
    at_s: float = 0.0
    """The last sample, of all accounts alike; 0 = none yet."""
    ahead: frozenset[GangAdmission] = frozenset()
    """Admissions that count ahead in the accounts, or that the sample had."""

    def used(self) -> dict[str, dict[str, float]]:
        """Local queue -> resource -> what it used lately, with what counts ahead."""
        return {local: account.total() for local, account in sorted(self.accounts.items())}


def local_queue_of(gang: Gang) -> str:
    """Whose use the gang counts as."""
    return f"{gang.namespace}/{gang.queue}"


@remembered()
def usage_decay(fleet: Fleet) -> UsageDecay | None:
    """How use is remembered; None where it is not."""
    said = fleet.policy.spec.admission_fair_sharing
    if said is None:
        return None
    return UsageDecay(said.usage_half_life_time, said.usage_sampling_interval, dict(said.resource_weights))


@remembered()
def local_queue_weights(fleet: Fleet) -> Mapping[str, float]:
    """Local queue -> its weight, where one is written."""
    found = {key: local.spec.fair_sharing.weight for key, local in fleet.local_queues.items()}
    for queue in fleet.queues.values():
        sharing = queue.spec.admission_fair_sharing
        for namespace, weight in sharing.namespace_weights.items() if sharing else ():
            found[f"{namespace}/{queue.name}"] = weight
    return found


def usage_ledger(fleet: Fleet, snapshot: Snapshot) -> UsageLedger | None:
    """What orders local queues now; None where use is not remembered."""
    terms = usage_decay(fleet)
    if terms is None:
        return None
    return UsageLedger(
        terms,
        {local: LocalQueueUsage(used) for local, used in snapshot.local_usage.items()},
        local_queue_weights(fleet),
    )


def usage_order_values(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, float]:
    """Local queue -> the number that orders it, of the queues that are ordered by use; 0 where there is none."""
    ledger = usage_ledger(fleet, snapshot)
    if ledger is None:
        return {}
    said = current_quota_specs(fleet, snapshot)
    return {local: value for local, value in ledger.values().items() if _ordered(fleet, said, *local.split("/", 1))}


def next_sample(fleet: Fleet, snapshot: Snapshot, before: UsageSample) -> UsageSample:
    """The accounts as of now: sampled when it is time, and with everybody who was admitted since.

    The same tally when nothing has changed; an empty one where use is not remembered. A clock that went back before
    the last sample takes a new one, which changes no amount.
    """
    terms = usage_decay(fleet)
    if terms is None:
        return before if before == UsageSample() else UsageSample()
    said = current_quota_specs(fleet, snapshot)
    held = _holdings(fleet, said, holders(snapshot))
    now = snapshot.now_s
    if not before.at_s:
        return UsageSample({}, now, frozenset(holding.admission for holding in _since(held, now)))
    if not 0 <= now - before.at_s < terms.sampling_s:
        return _sampled(fleet, said, held, before, now, terms)
    return _counted(held, before, terms)


class _GangUsage(NamedTuple):
    """What one gang of a queue that is ordered by use holds."""

    local_queue: str
    admission: GangAdmission
    amounts: Mapping[str, int]


def _ordered(fleet: Fleet, said: QuotaSpecs, namespace: str, queue: str) -> bool:
    line = binding_of(fleet, namespace, queue)
    return line is not None and said.queues[line.name].usage_ordered


@remembered()
def _holdings(fleet: Fleet, said: QuotaSpecs, gangs: Sequence[Gang]) -> Sequence[_GangUsage]:
    """The newest first."""
    taken = usages(fleet, said, gangs)
    found = []
    for gang in gangs:
        if _ordered(fleet, said, gang.namespace, gang.queue):
            amounts: dict[str, int] = {}
            for part in parts(gang):
                for cell, amount in taken[part.uid].items():
                    amounts[cell.resource] = amounts.get(cell.resource, 0) + amount
            found.append(_GangUsage(local_queue_of(gang), GangAdmission(gang.uid, gang.quota_reserved_at_s), amounts))
    return sorted(found, key=lambda holding: (-holding.admission.at_s, holding.admission.uid))


def _since(held: Sequence[_GangUsage], at_s: float) -> Iterator[_GangUsage]:
    """Those admitted at an instant or later."""
    for holding in held:
        if holding.admission.at_s < at_s:
            return
        yield holding


def _sampled(
    fleet: Fleet, said: QuotaSpecs, held: Sequence[_GangUsage], before: UsageSample, now_s: float, terms: UsageDecay
) -> UsageSample:
    usage: dict[str, dict[str, int]] = {}
    for holding in held:
        total = usage.setdefault(holding.local_queue, {})
        for resource, amount in holding.amounts.items():
            total[resource] = total.get(resource, 0) + amount
    accounts = {}
    for local in sorted({*before.accounts, *usage}):
        account = before.accounts.get(local, LocalQueueUsage({}, before.at_s))
        sampled = account.sampled(usage.get(local, {}), now_s, terms.half_life_s).without(FORGOTTEN)
        if sampled.consumed and _ordered(fleet, said, *local.split("/", 1)):
            accounts[local] = sampled
    return UsageSample(accounts, now_s, frozenset(holding.admission for holding in _since(held, now_s)))


def _counted(held: Sequence[_GangUsage], before: UsageSample, terms: UsageDecay) -> UsageSample:
    fresh = [holding for holding in _since(held, before.at_s) if holding.admission not in before.ahead]
    if not fresh:
        return before
    accounts = dict(before.accounts)
    for holding in fresh:
        account = accounts.get(holding.local_queue, LocalQueueUsage({}, before.at_s))
        accounts[holding.local_queue] = account.admitted(holding.amounts, terms.sampling_s, terms.half_life_s)
    return UsageSample(accounts, before.at_s, before.ahead | {holding.admission for holding in fresh})
