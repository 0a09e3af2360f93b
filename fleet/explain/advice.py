"""What would have a waiting gang start: a few changes, each tried on the engine that decides, the cheapest that works.

A change is tried in a whole pass over the present snapshot, with everybody else as they are. One that has others
evicted is tried again as if they had left. What the engine does not admit then is never told.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from fleet.actions import Action, OpenClaims, SaveGang
from fleet.cost.lost_work import lost_work_usd
from fleet.explain.what_if import QuotaStanding, of_class, standings, with_gpus
from fleet.fence import told_apart
from fleet.mig.layouts import gpu_part
from fleet.quota.build_tree import usages
from fleet.quota.queue_binding import binding_of, known_queues
from fleet.quota.specs import FlavorResource
from fleet.reasons import Reason, some_of
from fleet.scheduling import cycle
from fleet.scheduling.queue_order import BATCH_MAX_S, ends_at_s
from fleet.snapshot import Gang, GangState, Pod, PodSet, Snapshot
from model.fleet import Fleet
from model.index import Index
from model.kinds import Team
from model.plain_text import counted
from model.quantity import format_amount

T = TypeVar("T")
MOST_TRIES: Final = 16
"""Changes that are tried for one gang; each takes one pass, or two where it has others evicted."""
CLASSES_MOST, QUEUES_MOST, ENDS_MOST, COUNTS_MOST = 3, 3, 4, 4
"""Of each kind of change, tried at most."""
OTHER_TEAMS: Final = "a gang of another team"


class ChangeKind(StrEnum):
    """What is changed; of changes that waste as little, the one that comes first here is told first."""

    OTHER_FLAVOR = "OtherFlavor"
    """Its pods select their machines no longer, and so get a flavor that they could not have, which is named."""
    OTHER_QUEUE = "OtherQueue"
    HIGHER_CLASS = "HigherClass"
    BORROWING_LIMIT = "BorrowingLimit"
    LOWER_COUNT = "LowerCount"
    GANG_ENDS = "GangEnds"


_ORDER: Final = tuple(ChangeKind)


class Change(NamedTuple):
    """A change, as it is tried: another gang, another fleet, or somebody gone."""

    kind: ChangeKind
    words: str
    """What to do, as a sentence without its full stop."""
    gang: Gang
    """The gang as it would be."""
    fleet: Fleet
    gone: str = ""
    """uid of a gang that would have ended."""
    named: str = ""
    """Its name."""

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """Returns the snapshot with the change in it."""
        left = snapshot.gangs.get(self.gone) if self.gone else None
        world = _without(snapshot, [left] if left is not None else [])
        jobs = world.jobs
        if (job := jobs.get(self.gang.uid)) is not None:
            jobs = {**jobs, self.gang.uid: replace(job, pod_sets=self.gang.pod_sets, queue=self.gang.queue)}
        return replace(world, gangs={**world.gangs, self.gang.uid: self.gang}, jobs=jobs)


def _without(snapshot: Snapshot, gone: Sequence[Gang]) -> Snapshot:
    """Returns the snapshot as if gangs had left, and none of their pods stood on a node any more."""
    uids, keys = {it.uid for it in gone}, {f"{it.namespace}/{it.workload}" for it in gone}
    nodes = {pod.node for key in keys for pod in snapshot.gang_pods.get(key, ())}
    return replace(
        snapshot,
        gangs=_less(snapshot.gangs, uids),
        jobs=_less(snapshot.jobs, uids),
        gang_pods=_less(snapshot.gang_pods, keys),
        node_pods=_emptied(snapshot.node_pods, nodes, keys),
        repelling_pods=_emptied(snapshot.repelling_pods, nodes, keys),
    )


def _less(table: Mapping[str, T], gone: Collection[str]) -> Mapping[str, T]:
    return {key: it for key, it in table.items() if key not in gone} if gone else table


def _emptied(
    table: Mapping[str, tuple[Pod, ...]], nodes: Collection[str], gone: Collection[str]
) -> Mapping[str, tuple[Pod, ...]]:
    """Returns pods by node without those of the gangs (`namespace/workload`) that are gone; they stood on `nodes`."""
    there = ((node, table[node]) for node in nodes if node in table)
    return {**table, **{node: tuple(it for it in pods if _key(it) not in gone) for node, pods in there}}


def _key(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.workload}"


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that the engine has admitted the gang with, and what comes of it."""

    kind: ChangeKind
    change: str
    """What to do."""
    effect: str
    """What would happen then."""
    state: str
    """Of the gang after the pass that admits it: `Admitted`, or `QuotaReserved` while machines are bought."""
    evicted: tuple[str, ...]
    """Names of gangs that would have to leave."""
    lost_usd: float
    """Work that they would lose."""
    bought_usd_h: float
    """Machines that would be bought for it."""
    named: str = ""
    """The gang whose end it is about; empty = none."""

    @property
    def words(self) -> str:
        """Returns change and effect as one sentence."""
        return f"{self.change}: {self.effect}"

    def without_names(self, seen: Callable[[str], bool]) -> "Advice":
        """Returns it for somebody who may not know of gangs that are not `seen`."""
        hidden = [name for name in (*self.evicted, self.named) if name and not seen(name)]
        change, effect = self.change, self.effect
        for name in sorted(hidden, key=len, reverse=True):
            change, effect = change.replace(name, OTHER_TEAMS), effect.replace(name, OTHER_TEAMS)
        evicted = tuple(name if seen(name) else OTHER_TEAMS for name in self.evicted)
        return replace(self, change=change, effect=effect, evicted=evicted, named="" if hidden else self.named)


class Adviser:
    """Tries changes for one gang, one at a time, so that whoever asks may pause between them."""

    def __init__(self, fleet: Fleet, snapshot: Snapshot, gang: Gang) -> None:
        self._snapshot = replace(snapshot, busy=frozenset(), index=Index())
        self._changes = list(changes_for(fleet, snapshot, gang))[:MOST_TRIES]
        self._counts = _Counts(fleet, gang)
        self.worked: list[tuple[Change, Advice]] = []
        """Every change that the engine has admitted the gang with, and what comes of it."""
        self.tries = 0

    @property
    def left(self) -> bool:
        """Returns whether there is anything more to try."""
        return self.tries < MOST_TRIES and (bool(self._changes) or self._counts.next() is not None)

    def step(self) -> None:
        """Tries one change: those of a list first, then fewer pods."""
        self.tries += 1
        listed = bool(self._changes)
        change = self._changes.pop(0) if listed else self._counts.next()
        found = tried(change, self._snapshot) if change is not None else None
        if not listed:
            self._counts.note(works=found is not None)
        if change is not None and found is not None:
            self.worked.append((change, found))

    @property
    def advice(self) -> tuple[Advice, ...]:
        """Returns the best that has been found to work of each kind, what wastes least first."""
        best: dict[ChangeKind, Advice] = {}
        for change, it in self.worked:
            old = best.get(it.kind)
            if old is None or change.kind is ChangeKind.LOWER_COUNT or _waste(it) < _waste(old):
                best[it.kind] = it  # of counts the last that worked is the highest
        return tuple(sorted(best.values(), key=_waste))


def _waste(it: Advice) -> tuple[object, ...]:
    return round(it.lost_usd, 2), len(it.evicted), _ORDER.index(it.kind), round(it.bought_usd_h, 2)


# -- what is tried ----------------------------------------------------------------------------------------------------


def changes_for(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[Change]:
    """Yields the changes that are tried for a gang, without fewer pods, which depend on each other."""
    asks = asking_anew(gang)
    short = [it for it in standings(fleet, snapshot, gang) if it.asked > it.free]
    yield from _other_flavors(fleet, asks)
    yield from _other_queues(fleet, asks)
    yield from _other_classes(fleet, asks)
    yield from _borrowing(fleet, asks, short)
    yield from _ends(fleet, snapshot, asks, short)


def asking_anew(gang: Gang) -> Gang:
    """Returns the gang as one that is to be decided now, whatever it was told before."""
    return replace(gang, reason=str(Reason.QUEUED), message="", requeue_at_s=0.0)


def _other_flavors(fleet: Fleet, gang: Gang) -> Iterator[Change]:
    chosen = sorted(set[str]().union(*(pods.node_selector for pods in gang.pod_sets)))
    if not chosen and not any(pods.required_affinity for pods in gang.pod_sets):
        return
    free = tuple(replace(pods, node_selector={}, required_affinity=()) for pods in gang.pod_sets)
    what = f"the node selector {', '.join(chosen)}" if chosen else "the required node affinity"
    yield Change(ChangeKind.OTHER_FLAVOR, f"drop {what}", replace(gang, pod_sets=free), fleet)


def _other_queues(fleet: Fleet, gang: Gang) -> Iterator[Change]:
    others = []
    for name in known_queues(fleet, gang.namespace):
        binding = binding_of(fleet, gang.namespace, name)
        mine = binding is not None and (binding.team is None or gang.namespace in binding.team.spec.namespaces)
        if name != gang.queue and mine:
            others.append(name)
    for name in others[:QUEUES_MOST]:
        yield Change(ChangeKind.OTHER_QUEUE, f"submit it to queue {name}", replace(gang, queue=name), fleet)


def _other_classes(fleet: Fleet, gang: Gang) -> Iterator[Change]:
    """Yields higher classes that the team may use; any, the nearest first, for a gang of one that it may not."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    allowed = binding.team.spec.priority_classes if binding is not None and binding.team is not None else ()
    refused = bool(allowed and gang.priority_class and gang.priority_class not in allowed)
    others = sorted(
        (abs(it.spec.value - gang.priority), name)
        for name, it in fleet.priority_classes.items()
        if (it.spec.value > gang.priority or refused) and (not allowed or name in allowed)
    )
    for _, name in others[:CLASSES_MOST]:
        yield Change(ChangeKind.HIGHER_CLASS, f"give it priority class {name}", of_class(fleet, gang, name), fleet)


def _borrowing(fleet: Fleet, gang: Gang, short: Sequence[QuotaStanding]) -> Iterator[Change]:
    """Yields the least borrowing limits of its team under which each resource of one flavor would be enough."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    team = binding.team if binding is not None else None
    if team is None:
        return
    for flavor in dict.fromkeys(it.levels[0].flavor for it in short):
        raised = _raised(team, [it for it in short if it.levels[0].flavor == flavor])
        if raised is not None:
            teams = {**fleet.teams, team.name: raised.team}
            yield Change(ChangeKind.BORROWING_LIMIT, raised.words, gang, replace(fleet, teams=teams, index=Index()))


class _Raised(NamedTuple):
    team: Team
    words: str


def _raised(team: Team, short: Sequence[QuotaStanding]) -> _Raised | None:
    flavor = short[0].levels[0].flavor
    quota = team.spec.quotas.get(flavor)
    limits = dict(quota.borrowing_limit or {}) if quota is not None else {}
    words = []
    for it in short:
        resource, own = it.levels[0].resource, it.levels[1] if len(it.levels) > 1 else it.levels[0]
        if quota is None or resource not in limits:
            continue
        needed = own.used + it.asked - quota.guaranteed.get(resource, 0)
        if needed > limits[resource]:
            now, then = (format_amount(resource, amount) for amount in (limits[resource], needed))
            words.append(f"raise borrowingLimit of {resource} in {flavor} of team {team.name} from {now} to {then}")
            limits[resource] = needed
    if quota is None or not words:
        return None
    quotas = {**team.spec.quotas, flavor: quota.model_copy(update={"borrowing_limit": limits})}
    spec = team.spec.model_copy(update={"quotas": quotas})
    return _Raised(team.model_copy(update={"spec": spec}), " and ".join(words))


def _ends(fleet: Fleet, snapshot: Snapshot, gang: Gang, short: Sequence[QuotaStanding]) -> Iterator[Change]:
    """Yields the ends of gangs that hold what it lacks, the first to end first, then the smallest that is enough."""
    cells = {(it.levels[0].flavor, it.levels[0].resource) for it in short}
    taken = usages(fleet, snapshot) if cells else {}
    holding = [
        it
        for it in snapshot.gangs.values()
        if it.uid != gang.uid and it.holds_capacity and _takes_any(taken.get(it.uid, {}), cells)
    ]
    wanted = _gpus(gang)

    def order(it: Gang) -> tuple[object, ...]:
        has = _gpus(it)
        return has < wanted, ends_at_s(it, snapshot.now_s), has, it.name, it.uid

    for it in sorted(holding, key=order)[:ENDS_MOST]:
        yield Change(ChangeKind.GANG_ENDS, f"wait for {it.name} to end", gang, fleet, it.uid, it.name)


def _takes_any(taken: Mapping[FlavorResource, int], cells: Collection[tuple[str, str]]) -> bool:
    """Returns whether a gang takes of any of these (flavor, resource); so does every one where none is named."""
    return not cells or any(tuple(cell) in cells and amount for cell, amount in taken.items())


def _gpus(gang: Gang) -> int:
    return sum(sum(gpu_part(pods.requests).values()) * pods.count for pods in gang.pod_sets)


class _Counts:
    """Fewer pods of the largest set, or fewer GPUs of a single pod: bisected for the most that starts."""

    def __init__(self, fleet: Fleet, gang: Gang) -> None:
        self._fleet, self._gang = fleet, asking_anew(gang)
        sizes = [
            (pods.count, pods.name) for pods in gang.pod_sets if gpu_part(pods.requests) or len(gang.pod_sets) == 1
        ]
        count, self._set = max(sizes, default=(0, ""))
        self._pods = count > 1
        self._each = max((sum(gpu_part(pods.requests).values()) for pods in gang.pod_sets), default=0)
        self._low, self._high = 0, (count if self._pods else self._each)
        self._tries = 0

    def next(self) -> Change | None:
        """Returns the next count to try; None when it is found, or enough was tried."""
        if self._tries >= COUNTS_MOST or self._high - self._low < 2 or self._gang.choice is not None:
            return None
        middle = (self._low + self._high) // 2
        if self._pods:
            smaller = tuple(_of_count(pods, self._set, middle) for pods in self._gang.pod_sets)
            words = f"ask for {middle} instead of {self._count()} pods of {self._set}"
        else:
            smaller = tuple(with_gpus(pods, middle) for pods in self._gang.pod_sets)
            words = f"ask for {middle} instead of {self._each} GPUs a pod"
        return Change(ChangeKind.LOWER_COUNT, words, replace(self._gang, pod_sets=smaller), self._fleet)

    def note(self, *, works: bool) -> None:
        """Takes in what came of the last count."""
        self._tries += 1
        middle = (self._low + self._high) // 2
        if works:
            self._low = middle
        else:
            self._high = middle

    def _count(self) -> int:
        return self._gang.pod_set(self._set).count


def _of_count(pods: PodSet, name: str, count: int) -> PodSet:
    if pods.name != name:
        return pods
    core = None if pods.core is None else min(pods.core, count)
    return replace(pods, count=count, core=core, min_count=pods.min_count and min(pods.min_count, count))


# -- trying it --------------------------------------------------------------------------------------------------------

_HAS: Final = frozenset({GangState.RESERVED, GangState.ADMITTED})


def tried(change: Change, snapshot: Snapshot) -> Advice | None:
    """Returns what comes of a change if the engine admits the gang with it; None where it does not."""
    world = change.applied(snapshot)
    first = _pass(change, world)
    if first.reason == Reason.BATCHING:
        world = replace(world, now_s=world.now_s + BATCH_MAX_S + 1)
        first = _pass(change, world)
    if first.state in _HAS:
        return _advice(change, first, (), snapshot)
    if first.reason != Reason.WAITING_FOR_PREEMPTED or not first.evicted:
        return None
    left = _without(world, first.evicted)
    second = _pass(change, replace(left, gangs={**left.gangs, change.gang.uid: first.gang}))
    return _advice(change, second, first.evicted, snapshot) if second.state in _HAS else None


class _Outcome(NamedTuple):
    gang: Gang
    evicted: Sequence[Gang]
    bought_usd_h: float

    @property
    def state(self) -> GangState:
        return self.gang.state

    @property
    def reason(self) -> str:
        return self.gang.reason


def _pass(change: Change, world: Snapshot) -> _Outcome:
    """Returns what one pass makes of the gang. Others whom it cannot decide about are left out, as the agent does."""
    actions, _ = told_apart(cycle.decide(change.fleet, world))
    saved = [action.gang for action in actions if isinstance(action, SaveGang)]
    gang = next((it for it in saved if it.uid == change.gang.uid), change.gang)
    evicted = [it for it in saved if it.uid != gang.uid and it.state is GangState.EVICTING]
    return _Outcome(gang, evicted, _bought_usd_h(actions, gang))


def _bought_usd_h(actions: Iterable[Action], gang: Gang) -> float:
    """Returns what is charged for machines that are opened and that the gang is pinned to."""
    claims = [claim for action in actions if isinstance(action, OpenClaims) for claim in action.claims]
    own = {pin.claim for pin in gang.pins}
    return sum(claim.charged_usd_h for claim in claims if claim.name in own)


def _start_words(outcome: _Outcome, *, at_once: bool) -> str:
    if outcome.state is GangState.ADMITTED:
        return "it starts at once" if at_once else "it starts then"
    bought = f" for {outcome.bought_usd_h:.2f} USD/h" if outcome.bought_usd_h else ""
    coming, cut = len({pin.claim for pin in outcome.gang.pins if not pin.node}), len(outcome.gang.recuts)
    told = (coming, f"readied{bought}"), (cut, "cut anew")
    words = [f"{counted(count, 'machine')} would be {done}" for count, done in told if count]
    return f"{' and '.join(words)}, and it starts on them" if words else "it starts once all is ready"


def _flavors_words(gang: Gang) -> str:
    names = sorted({name for each in gang.flavors.values() for name in each})
    return (
        f", so that it gets machines of flavor {' and '.join(names)}" if names else ", so that other machines will do"
    )


def _lost_words(usd: float, gangs: int) -> str:
    return f", which {'lose' if gangs > 1 else 'loses'} {usd:.2f} USD of work" if usd else ""


def _advice(change: Change, outcome: _Outcome, evicted: Iterable[Gang], snapshot: Snapshot) -> Advice:
    before = [snapshot.gangs.get(it.uid, it) for it in evicted]
    lost_usd = sum(lost_work_usd(it, snapshot) for it in before)
    names = tuple(sorted(it.name for it in before))
    parts = []
    if names:
        parts.append(f"{some_of(names)} would leave{_lost_words(lost_usd, len(names))}")
    parts.append(_start_words(outcome, at_once=not names))
    return Advice(
        change.kind,
        change.words + (_flavors_words(outcome.gang) if change.kind is ChangeKind.OTHER_FLAVOR else ""),
        "; ".join(parts),
        str(outcome.state),
        names,
        lost_usd,
        outcome.bought_usd_h,
        change.named,
    )
