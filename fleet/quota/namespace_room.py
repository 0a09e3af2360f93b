"""What the ResourceQuotas of namespaces still let in: of pods that are to be created, the API server would refuse more.

A quota's status counts the pods that are there, whoever made them; added to it is what gangs that were let in have
still to create. So nothing is bought for pods that could not be made (Volcano plugin `resourcequota`, which asks once,
at the gate before its queue, and for each PodGroup alone).
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.actions import gang_subject
from fleet.fence import concerning
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang, GangState, Hold, Job, NamespaceQuota, NamespaceQuotas, Snapshot
from fleet.snapshot.resource_quotas import counts_in, resource_of, strange_scopes, unsaid, usage_of
from fleet.snapshot.works import PLAIN
from model.index import Index, derived, derived_each
from model.quantity import Resources, format_amount


class QuotaCharge(NamedTuple):
    """A `QuotaCharge` is what pods take of one ResourceQuota, of the resources that it bounds."""

    quota: NamespaceQuota
    amounts: Resources


class _PodCharge(NamedTuple):
    """What one pod of a set counts in a quota, and what that wants its containers to say and they do not."""

    quota: NamespaceQuota
    pod_set: str
    amounts: Resources
    unsaid: str


Counts = Mapping[str, int]
"""Pod set -> pods."""
KINDS_MOST, COUNTS_MOST = 10_000, 100
"""Kinds of jobs that are remembered while no ResourceQuota is changed, and counts of pods of each."""


class CountedCharges(NamedTuple):
    """What so many pods of each set of a job take, by quota, a key of that, and why they would never be let in."""

    total: tuple[QuotaCharge, ...] = ()
    shape: Hashable = ()
    never: Refusal | None = None
    """None where they would be, if nobody else were there."""


@dataclass(frozen=True, slots=True, eq=False)
class JobCharges:
    """`JobCharges` are what pods of jobs of one kind take of the quotas that count them.

    Thousands of gangs that wait in one namespace are of few kinds: each sum is made once a kind.
    """

    each: tuple[_PodCharge, ...] = ()
    _known: dict[tuple[tuple[str, int], ...], CountedCharges] = field(default_factory=dict)

    def of(self, counts: Counts) -> CountedCharges:
        """Returns what so many pods of each set take together."""
        key = tuple(counts.items())
        if (found := self._known.get(key)) is None:
            if len(self._known) >= COUNTS_MOST:
                self._known.clear()
            found = self._known[key] = _counted(self.each, counts)
        return found


def _counted(each: Sequence[_PodCharge], counts: Counts) -> CountedCharges:
    total = tuple(_summed(each, counts))
    shape = tuple((it.quota.key, tuple(sorted(it.amounts.items()))) for it in total)
    return CountedCharges(total, shape, _never(each, counts, total))


def _summed(each: Sequence[_PodCharge], counts: Counts) -> Iterator[QuotaCharge]:
    totals: dict[str, tuple[NamespaceQuota, Counter[str]]] = {}
    for it in each:
        if count := counts.get(it.pod_set, 0):
            _, total = totals.setdefault(it.quota.key, (it.quota, Counter()))
            for name, amount in it.amounts.items():
                total[name] += amount * count
    yield from (QuotaCharge(quota, total) for quota, total in totals.values() if total)


def _never(each: Sequence[_PodCharge], counts: Counts, total: Sequence[QuotaCharge]) -> Refusal | None:
    for quota, amounts in total:
        for name, amount in sorted(amounts.items()):
            if amount > quota.hard[name]:
                asked, most = (format_amount(resource_of(name), it) for it in (amount, quota.hard[name]))
                words = f"{_named(quota)} bounds {name} at {most}, and it asks {asked}: ask less, or have it raised"
                return Refusal(Reason.RESOURCE_QUOTA, words + _doubts(quota))
    for it in each:
        if it.unsaid and counts.get(it.pod_set):
            words = f"{_named(it.quota)}: pods of {it.pod_set!r} must specify {it.unsaid}"
            return Refusal(Reason.RESOURCE_QUOTA, words)
    return None


@dataclass(slots=True)
class NamespaceRoom:
    """A `NamespaceRoom` is what a pass has let into the ResourceQuotas of each namespace; what-ifs are undone."""

    snapshot: Snapshot
    _taken: dict[str, Counter[str]] = field(default_factory=dict)
    """Quota -> resource -> what is used, with all that was let in."""
    _to_come: dict[str, Counter[str]] = field(default_factory=dict)
    """Quota -> resource -> how much of that was let in before the pass and is still to be created."""
    _charges: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[QuotaCharge, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "NamespaceRoom":
        """Returns the room as a pass finds it."""
        quotas = snapshot.namespace_quotas.by_namespace
        room = cls(snapshot, {it.key: Counter(it.used) for of_one in quotas.values() for it in of_one})
        gang: Gang
        with concerning(lambda: gang_subject(gang.uid)):
            for gang in snapshot.gangs.values():
                if gang.namespace in quotas and gang.state in {GangState.RESERVED, GangState.ADMITTED}:
                    room._expect(gang)
        return room

    def _expect(self, gang: Gang) -> None:
        """Charges what a gang that was let in has still to create."""
        if gang_subject(gang.uid) in self.snapshot.set_aside:
            return
        counts = to_come(self.snapshot, gang, {pods.name: pods.count for pods in gang.needed})
        for quota, amounts in _of_kind(self.snapshot, gang).of(counts).total:
            self._taken[quota.key].update(amounts)
            self._to_come.setdefault(quota.key, Counter()).update(amounts)

    def refusal(self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False) -> Refusal | None:
        """Returns why the pods that a workload has still to create would be refused; None where they would not.

        `empty`: as if there were no others in its namespace.
        """
        for quota, amounts in self._of(workload, given):
            used = Counter[str]() if empty else self._taken[quota.key]
            over = [name for name, amount in amounts.items() if used[name] + amount > quota.hard[name]]
            if over:
                return _refused(quota, amounts, min(over), used, self._to_come.get(quota.key, Counter()))
        return None

    def shift(self, workload: Workload, given: Sequence[PodSetAssignment], sign: int) -> None:
        """Charges the pods of a workload (`sign` 1), or gives back what they take (-1); nothing `given`: all."""
        for quota, amounts in self._of(workload, given):
            taken = self._taken[quota.key]
            for name, amount in amounts.items():
                taken[name] += sign * amount

    def _of(self, workload: Workload, given: Sequence[PodSetAssignment]) -> tuple[QuotaCharge, ...]:
        """Returns what the pods take that a workload has to create, or has created, from a job that can be suspended.

        Pods held one by one are made anew, behind their gate, as soon as they are told to go: they give nothing back.
        """
        gang = self.snapshot.gangs.get(workload.uid)  # surplus joins with pods that are there
        if gang is None or gang.namespace not in self.snapshot.namespace_quotas.by_namespace:
            return ()
        counts = tuple((one.name, one.count) for one in given or workload.pod_sets)
        key = workload.uid, counts
        if key not in self._charges:
            made = _made_by(self.snapshot, gang, dict(counts))
            self._charges[key] = _of_kind(self.snapshot, gang).of(made).total
        return self._charges[key]


def bounded_shape(snapshot: Snapshot, gang: Gang) -> Hashable:
    """Returns what is alike for waiting gangs that the ResourceQuotas of their namespace treat alike."""
    asked = {pods.name: pods.count for pods in gang.needed}
    return gang.namespace, _of_kind(snapshot, gang).of(to_come(snapshot, gang, asked)).shape


def never_let_in(snapshot: Snapshot, gang: Gang) -> Refusal | None:
    """Returns why no pods of a gang would ever be let in, even into an empty namespace; None where they may be."""
    least = {pods.name: pods.count if pods.min_count is None else pods.min_count for pods in gang.needed}
    if gang.choice is not None:
        least = {}
    return _of_kind(snapshot, gang).of(_made_by(snapshot, gang, least)).never


def to_come(snapshot: Snapshot, gang: Gang, counts: Counts) -> Counts:
    """Returns how many of so many pods of each set are not there yet; pods of plain groups always are."""
    job = snapshot.jobs.get(gang.uid)
    if job is None or job.ref.kind in PLAIN:
        return {}
    held = job.hold is Hold.PODS
    there = snapshot.job_pods.get(gang.uid, ()) if held else snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}")
    if not there:
        return {name: count for name, count in counts.items() if count > 0}
    has = Counter(pod.pod_set for pod in there if pod.phase != "Failed" and not pod.deleting)
    left, found = sum(counts.values()) - has.total(), {}
    for name, count in counts.items():
        more = min(max(0, count - has[name]), max(0, left))
        left -= more
        if more:
            found[name] = more
    return found


def _made_by(snapshot: Snapshot, gang: Gang, counts: Counts) -> Counts:
    """Returns which of so many pods go when the gang stops, and come when it starts."""
    job = snapshot.jobs.get(gang.uid)
    return counts if job and job.hold is Hold.SWITCH else to_come(snapshot, gang, counts)


_NOTHING = JobCharges()


def _of_kind(snapshot: Snapshot, gang: Gang) -> JobCharges:
    """Returns what pods of a gang count; its job alone says all that quotas look at."""
    if gang.uid not in snapshot.jobs:
        return _NOTHING
    return _job_charges(snapshot.index, _bounds(snapshot.index, snapshot.namespace_quotas), snapshot.jobs, gang.uid)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The quotas without what is used, which changes with every pod, and the kinds of jobs before them."""

    quotas: NamespaceQuotas
    kinds: dict[Hashable, JobCharges] = field(default_factory=dict, compare=False)


@derived(1, steady=True)
def _bounds(_index: Index, quotas: NamespaceQuotas) -> _Bounds:
    bare = {name: tuple(replace(it, used={}) for it in found) for name, found in quotas.by_namespace.items()}
    return _Bounds(replace(quotas, by_namespace=bare))


@derived_each
def _job_charges(bounds: _Bounds, job: Job) -> JobCharges:
    """Returns what pods of a job count in the quotas of its namespace: the same object for all jobs of its kind."""
    quotas, found = bounds.quotas, []
    for quota in quotas.by_namespace.get(job.ref.namespace, ()):
        for pods in job.pod_sets:
            if counts_in(quota, pods, quotas.default_class):
                usage = {name: amount for name, amount in usage_of(pods).items() if name in quota.hard}
                found.append(_PodCharge(quota, pods.name, usage, next(unsaid(quota, pods), "")))
    kind = tuple((it.quota.key, it.pod_set, tuple(it.amounts.items()), it.unsaid) for it in found)
    if len(bounds.kinds) >= KINDS_MOST:
        bounds.kinds.clear()
    return bounds.kinds.setdefault(kind, JobCharges(tuple(found)))


def _refused(
    quota: NamespaceQuota, amounts: Resources, name: str, used: Counter[str], to_come: Counter[str]
) -> Refusal:
    base = resource_of(name)
    asked, taken, most = (format_amount(base, it) for it in (amounts[name], used[name], quota.hard[name]))
    later = f", {format_amount(base, to_come[name])} of that by pods still to be created" if to_come[name] else ""
    words = f"{_named(quota)} has no room for its pods: they ask {asked} {name}, {taken} of {most} used{later}"
    return Refusal(Reason.RESOURCE_QUOTA, words + _doubts(quota))


def _named(quota: NamespaceQuota) -> str:
    return f"ResourceQuota {quota.name} of namespace {quota.namespace}"


def _doubts(quota: NamespaceQuota) -> str:
    """Returns which of its scopes are not known, and are taken to mean its pods."""
    strange = strange_scopes(quota)
    return f" (its scope {', '.join(strange)} is not known here, and taken to hold)" if strange else ""
