"""What local queues used lately: the accounts between decisions, and the ledger decisions are made with.

A *local queue* is `namespace/queue`, by the queue that jobs name: a LocalQueue of Kueue, or one namespace in a Queue of
ours. The rules are those of Kueue's admission fair sharing (reference 3.6): what admitted gangs hold is sampled and
forgotten by half lives, and an admission counts ahead, as much as one interval of it, until the sample has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.quota.compile import Declared, declared_now, usages
from fleet.quota.ledger import Account, Ledger, Terms
from fleet.quota.queue_binding import line_of
from fleet.snapshot import Gang, Snapshot
from fleet.snapshot.elastic_parts import parts
from fleet.snapshot.lookups import holders
from fleet.snapshot.memo import remembered
from model.fleet import Fleet

FORGOTTEN = 1e-6
"""Less than this of a resource (a millicore, a byte, a device) is nothing: accounts do not pile up for ever."""


class Admission(NamedTuple):
    """A gang that got quota, and when."""

    uid: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Tally:
    """The accounts of all local queues at one sample, with what was admitted since."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    at_s: float = 0.0
    """The last sample, of all accounts alike; 0 = none yet."""
    ahead: frozenset[Admission] = frozenset()
    """Admissions that count ahead in the accounts, or that the sample had."""

    def used(self) -> dict[str, dict[str, float]]:
        """Local queue -> resource -> what it used lately, with what counts ahead."""
        return {local: account.total() for local, account in sorted(self.accounts.items())}


def local_queue_of(gang: Gang) -> str:
    """Whose use the gang counts as."""
    return f"{gang.namespace}/{gang.queue}"


@remembered()
def terms_of(fleet: Fleet) -> Terms | None:
    """How use is remembered; None where it is not."""
    said = fleet.policy.spec.admission_fair_sharing
    if said is None:
        return None
    return Terms(said.usage_half_life_time, said.usage_sampling_interval, dict(said.resource_weights))


@remembered()
def weights_of(fleet: Fleet) -> Mapping[str, float]:
    """Local queue -> its weight, where one is written."""
    found = {key: local.spec.fair_sharing.weight for key, local in fleet.local_queues.items()}
    for queue in fleet.queues.values():
        sharing = queue.spec.admission_fair_sharing
        for namespace, weight in sharing.namespace_weights.items() if sharing else ():
            found[f"{namespace}/{queue.name}"] = weight
    return found


def ledger_of(fleet: Fleet, snapshot: Snapshot) -> Ledger | None:
    """What orders local queues now; None where use is not remembered."""
    terms = terms_of(fleet)
    if terms is None:
        return None
    return Ledger(terms, {local: Account(used) for local, used in snapshot.local_usage.items()}, weights_of(fleet))


def values_of(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, float]:
    """Local queue -> the number that orders it, of the queues that are ordered by use; 0 where there is none."""
    ledger = ledger_of(fleet, snapshot)
    if ledger is None:
        return {}
    said = declared_now(fleet, snapshot)
    return {local: value for local, value in ledger.values().items() if _ordered(fleet, said, *local.split("/", 1))}


def tallied(fleet: Fleet, snapshot: Snapshot, before: Tally) -> Tally:
    """The accounts as of now: sampled when it is time, and with everybody who was admitted since.

    The same tally when nothing has changed; an empty one where use is not remembered. A clock that went back before
    the last sample takes a new one, which changes no amount.
    """
    terms = terms_of(fleet)
    if terms is None:
        return before if before == Tally() else Tally()
    said = declared_now(fleet, snapshot)
    held = _holdings(fleet, said, holders(snapshot))
    now = snapshot.now_s
    if not before.at_s:
        return Tally({}, now, frozenset(holding.admission for holding in _since(held, now)))
    if not 0 <= now - before.at_s < terms.sampling_s:
        return _sampled(fleet, said, held, before, now, terms)
    return _counted(held, before, terms)


class _Holding(NamedTuple):
    """What one gang of a queue that is ordered by use holds."""

    local_queue: str
    admission: Admission
    amounts: Mapping[str, int]


def _ordered(fleet: Fleet, said: Declared, namespace: str, queue: str) -> bool:
    line = line_of(fleet, namespace, queue)
    return line is not None and said.queues[line.name].usage_ordered


@remembered()
def _holdings(fleet: Fleet, said: Declared, gangs: Sequence[Gang]) -> Sequence[_Holding]:
    """The newest first."""
    taken = usages(fleet, said, gangs)
    found = []
    for gang in gangs:
        if _ordered(fleet, said, gang.namespace, gang.queue):
            amounts: dict[str, int] = {}
            for part in parts(gang):
                for cell, amount in taken[part.uid].items():
                    amounts[cell.resource] = amounts.get(cell.resource, 0) + amount
            found.append(_Holding(local_queue_of(gang), Admission(gang.uid, gang.quota_reserved_at_s), amounts))
    return sorted(found, key=lambda holding: (-holding.admission.at_s, holding.admission.uid))


def _since(held: Sequence[_Holding], at_s: float) -> Iterator[_Holding]:
    """Those admitted at an instant or later."""
    for holding in held:
        if holding.admission.at_s < at_s:
            return
        yield holding


def _sampled(
    fleet: Fleet, said: Declared, held: Sequence[_Holding], before: Tally, now_s: float, terms: Terms
) -> Tally:
    usage: dict[str, dict[str, int]] = {}
    for holding in held:
        total = usage.setdefault(holding.local_queue, {})
        for resource, amount in holding.amounts.items():
            total[resource] = total.get(resource, 0) + amount
    accounts = {}
    for local in sorted({*before.accounts, *usage}):
        account = before.accounts.get(local, Account({}, before.at_s))
        sampled = account.sampled(usage.get(local, {}), now_s, terms.half_life_s).without(FORGOTTEN)
        if sampled.consumed and _ordered(fleet, said, *local.split("/", 1)):
            accounts[local] = sampled
    return Tally(accounts, now_s, frozenset(holding.admission for holding in _since(held, now_s)))


def _counted(held: Sequence[_Holding], before: Tally, terms: Terms) -> Tally:
    fresh = [holding for holding in _since(held, before.at_s) if holding.admission not in before.ahead]
    if not fresh:
        return before
    accounts = dict(before.accounts)
    for holding in fresh:
        account = accounts.get(holding.local_queue, Account({}, before.at_s))
        accounts[holding.local_queue] = account.admitted(holding.amounts, terms.sampling_s, terms.half_life_s)
    return Tally(accounts, before.at_s, before.ahead | {holding.admission for holding in fresh})
