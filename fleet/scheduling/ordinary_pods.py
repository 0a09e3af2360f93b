"""Finds machines for pods of no gang that kube-scheduler has found no place for: those on their way, or bought ones.

Corresponds to Karpenter's provisioner. Such pods hold no quota, unless their team says so (`PodQuota`), and are never
pinned: kube-scheduler binds them, once there is a machine that it accepts for them. Room that they have been found is
kept for them before gangs are looked at, as kube-scheduler would give it to them; what is bought for them comes after
the gangs, in the same joint purchase. Pods that ask for the same are placed together, as many of them as there is a
place for. Last come the pods that CapacityBuffers stand for (`SpareRoom`), so that they take no room from anybody.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fleet.actions import NominatePods, pod_subject
from fleet.fence import concerning
from fleet.mig.layouts import gpu_part
from fleet.nodeclaims.capacity_buffers import buffer_need, buffer_rooms, buffer_uid, take_room, virtual_pods
from fleet.placement.flavor_nodes import pools_for_pods
from fleet.placement.followers import place_leading
from fleet.placement.free_capacity import free_capacity
from fleet.placement.place_pods import of_pods, place_most
from fleet.placement.plan import Need, PlacementPlan
from fleet.placement.pod_quota import ANY_FLAVOR, PodQuota
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason, Refusal
from fleet.scheduling.placement_backend import ClusterBackend, PlacedGang
from fleet.scheduling.prefilter import takes_no_more
from fleet.scheduling.queue_order import BATCH_IDLE_S, BATCH_MAX_S, batching_refusal
from fleet.scheduling.queue_order import open_batch as open_batch_of_gangs
from fleet.snapshot import GangState, Pod, PodVerdict, Snapshot, WaitingPods, pod_classes, pods_that_wait
from fleet.snapshot.affinity import FOR_GANGS
from fleet.snapshot.constraints import PodAffinityTerm
from fleet.snapshot.lookups import anti_affinity_terms
from model.fleet import Fleet
from model.labels import HOSTNAME
from model.quantity import CPU

if TYPE_CHECKING:
    from fleet.scheduling.joint_purchase import BoughtApart

BELIEVED_S: Final = 120.0
"""For so long room on a ready node counts for a pod: kube-scheduler binds within seconds what it accepts."""
NOT_BELIEVED_S: Final = 600.0
NOT_BELIEVED_MOST_S: Final = 86_400.0
"""After so long such a pod is looked at again, then after twice as long each time up to this: it may cost a machine."""
MANY_CLASSES: Final = 64
"""From so many classes that ask something of each other machines are chosen for all of them at once."""


def waiting_pods(fleet: Fleet, snapshot: Snapshot) -> Sequence[Pod]:
    """Returns the pods to find machines for, by key; none where no pool serves them."""
    if not snapshot.waiting_pods or not pools_for_pods(fleet):
        return ()
    return pods_that_wait(snapshot.index, snapshot.waiting_pods, snapshot.jobs)


def lacking(fleet: Fleet, snapshot: Snapshot) -> bool:
    """Returns whether pods of no gang wait, or a CapacityBuffer has less room than it should."""
    if waiting_pods(fleet, snapshot):
        return True
    return bool(fleet.capacity_buffers) and any(room.missing for room in buffer_rooms(fleet, snapshot))


def forgotten(snapshot: Snapshot) -> Iterator[NominatePods]:
    """Yields that nothing is to be remembered of pods any more, once none waits."""
    if snapshot.pod_verdicts:
        yield NominatePods({})


def open_batch(pods: Sequence[Pod], verdicts: Mapping[str, PodVerdict], now_s: float) -> bool:
    """Returns whether more pods may come in a moment, so that nothing is bought yet (Karpenter's batching window)."""
    ages_s = [now_s - pod.waits_since_s for pod in pods if _is_new(verdicts.get(pod.uid))]
    return any(0 <= age_s < BATCH_IDLE_S for age_s in ages_s) and all(age_s < BATCH_MAX_S for age_s in ages_s)


def asked_again_at_s(fleet: Fleet, snapshot: Snapshot) -> Iterator[float]:
    """Yields when a waiting pod may be answered otherwise though nothing happens (epoch seconds): batches and doubt."""
    for pod in waiting_pods(fleet, snapshot):
        yield from (pod.waits_since_s, pod.waits_since_s + BATCH_IDLE_S, pod.waits_since_s + BATCH_MAX_S)
        if (found := snapshot.pod_verdicts.get(pod.uid)) is not None:
            yield from (found.since_s + BELIEVED_S, found.since_s + _doubted_s(found))


def _doubted_s(verdict: PodVerdict) -> float:
    """Returns for how long a pod that is not bound is not looked at again (s)."""
    return min(NOT_BELIEVED_MOST_S, NOT_BELIEVED_S * 2.0 ** min(verdict.unbound - 1, 20))


def _is_new(verdict: PodVerdict | None) -> bool:
    return verdict is None or verdict.reason == Reason.BATCHING


@dataclass(slots=True)
class _Places:
    """The places found for the pods of one class, and why there are none for the others."""

    pods: WaitingPods
    left: int
    """Pods that have no place yet."""
    found: list[PlacementPlan] = field(default_factory=list)
    """On what stands or is on its way."""
    bought: list[str] = field(default_factory=list)
    """On what is bought in this pass: noted under these uids in `ClusterBackend.placed`, where the joint purchase may
    change it."""
    refusal: Refusal | None = None
    """Why there are places for no more of them."""
    room: bool = True
    """Whether there may be a place for one on what stands or is on its way."""

    @property
    def subject(self) -> str:
        """Returns the subject that stands for the class."""
        return pod_subject(self.pods.pods[0].uid)


@dataclass(slots=True)
class SpareRoom:
    """`SpareRoom` is the working state of one pass for CapacityBuffers, after everybody who is real has had a turn."""

    fleet: Fleet
    snapshot: Snapshot
    backend: ClusterBackend
    names: dict[str, str] = field(default_factory=dict)
    """What people call the buffers for which something is bought, by the uid under which it is noted."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """Buffer -> why no machine comes for some of its pods."""

    def buy(self, *, batched: bool) -> None:
        """Finds room for every buffer, and plans purchases for what is missing, unless more pods may come first."""
        capacity, now_s = self.backend.planner.capacity, self.snapshot.now_s
        waiting = [gang for gang in self.snapshot.gangs.values() if gang.state is GangState.PENDING]
        batched = batched or bool(open_batch_of_gangs(waiting, now_s))
        for key, shape in virtual_pods(self.fleet):
            if buffer_uid(key) in self.snapshot.set_aside:
                continue
            with concerning(buffer_uid(key)):
                need = buffer_need(self.fleet, capacity, shape, now_s)
                left, refusal = self._take(key, need, buys=False)
                if left:
                    left, refusal = (left, batching_refusal()) if batched else self._take(key, of_pods(need, left))
                if refusal is not None:
                    self.refused[key] = refusal

    def _take(self, key: str, need: Need, *, buys: bool = True) -> tuple[int, Refusal | None]:
        """Takes room for the pods of a buffer; returns for how many there is none, and why."""
        state, capacity = self.backend.state, self.backend.planner.capacity
        may_buy, capacity.may_buy = capacity.may_buy, capacity.may_buy and buys
        left = need.pod_set.count
        try:
            while left:
                found, count = take_room(state, capacity, key, of_pods(need, left))
                if isinstance(found, Refusal):
                    return left, found
                left -= count
                if buys:  # also what has room on machines of this pass, as the joint purchase may change those
                    uid = f"{buffer_uid(key)}/{self._beside()}/{len(self.names)}"
                    self.names[uid] = f"CapacityBuffer {key}"
                    self.backend.note_pods(uid, found, (of_pods(need, count),))
        finally:
            capacity.may_buy = may_buy
        return left, None

    def _beside(self) -> str:
        """Returns what names a purchase besides buffer and instant: in one instant somebody may take the first one."""
        return hashlib.sha256(",".join(sorted(self.snapshot.claims)).encode()).hexdigest()[:10]


@dataclass(slots=True)
class OrdinaryPods:
    """`OrdinaryPods` are the working state of one pass for ordinary pods, beside `AdmissionPass` for gangs."""

    fleet: Fleet
    snapshot: Snapshot
    backend: ClusterBackend
    quota: PodQuota
    spare: SpareRoom
    _waiting: list[_Places] = field(default_factory=list)
    _batched: bool = False
    apart: "BoughtApart | None" = None
    """What was bought for many classes at once."""

    @classmethod
    def start(cls, fleet: Fleet, snapshot: Snapshot, backend: ClusterBackend) -> "OrdinaryPods":
        """Begins a pass in which nothing has been found yet."""
        aside = snapshot.set_aside
        waiting = waiting_pods(fleet, snapshot)
        pods = tuple(pod for pod in waiting if pod_subject(pod.uid) not in aside) if aside else waiting
        classes = pod_classes(snapshot.index, pods, anti_affinity_terms(snapshot)) if pods else ()
        batched = open_batch(pods, snapshot.pod_verdicts, snapshot.now_s)
        ordered = sorted(classes, key=_hardest_first)
        quota, spare = PodQuota.start(fleet, snapshot, backend.planner.tree), SpareRoom(fleet, snapshot, backend)
        places = [_Places(each, each.shape.count) for each in ordered]
        return cls(fleet, snapshot, backend, quota, spare, places, batched)

    def nominate(self) -> None:
        """Takes places on machines that stand or are on their way."""
        for places in self._waiting:
            with concerning(places.subject):
                places.refusal = _unsupported(places.pods) or self._closed(places.pods) or self._not_bound(places.pods)
                if places.refusal is not None:
                    continue
                places.room = self._has_room(places)
                if places.room:
                    spreads = any(each.hard for each in places.pods.shape.constraints.spread)
                    self._take(places, may_buy=spreads, buys=False)
                    places.room = spreads  # of others none is left for whom there is a place

    def _has_room(self, places: _Places) -> bool:
        """Returns whether any machine has room for a pod of a class, whatever else stands against it."""
        backend, shape = self.backend, places.pods.shape
        for flavor in self.quota.flavors(shape.namespace):
            need = self._need(places, flavor, 1)
            free = free_capacity(
                backend.state, need.asks, need.pod_set.requests, need.accepts, backend.planner.capacity.priced
            )
            if free.among(places.pods.uid).room:
                return True
        return False

    def buy(self) -> None:
        """Plans purchases for pods that have no place yet, unless more may come in a moment; then for buffers."""
        seeking = [it for it in self._waiting if _seeks_company(it)]
        if not self._batched and self.backend.planner.capacity.may_buy:
            self._buy_apart()
        for places in self._waiting:
            followers = [it for it in seeking if it is not places and it.left and _follows(it, places)]
            self._buy_for(places, followers)
            for each in followers:  # at once, while there is room beside the one that they follow
                self._buy_for(each, ())
        if self.fleet.capacity_buffers:
            self.spare.buy(batched=self._batched)

    def _buy_apart(self) -> None:
        """Buys for all that ask something of each other at once, where domains and caps of machines say all about it.

        Only where they are many: for few the search class by class, which knows rules that caps are stricter than,
        takes no time and pays less. All or none, as who comes first decides where others may stand.
        """
        waiting = [it for it in self._waiting if it.left and not _is_lasting(it)]
        if len(waiting) < MANY_CLASSES or not all(self._takes_no_quota(it) for it in waiting):
            return
        from fleet.placement.machine_caps import MachineCaps
        from fleet.scheduling.joint_purchase import buy_apart  # imports numpy, which most passes do not need
        from fleet.scheduling.pods_by_zone import ZoneShares, resource_names

        neighbours = self.backend.state.neighbours
        caps = MachineCaps.of(neighbours, [it.pods.shape for it in waiting])
        needs = [(it, self._need(it, ANY_FLAVOR[0], it.left)) for it in waiting]
        able = ZoneShares(neighbours, self.backend.planner.capacity, caps, resource_names(it for _, it in needs))
        asking = [(it, need) for it, need in needs if able.concerns(need)]
        if len(asking) < MANY_CLASSES or not all(able.reduces(need) and not it.room for it, need in asking):
            return
        shares = able.shares({f"{it.pods.uid}/0": need for it, need in asking})
        self.apart = buy_apart(self.backend, shares, caps, self.fleet.policy.spec.purchases) if shares else None
        for it, _ in asking if self.apart is not None else ():
            it.bought.append(f"{it.pods.uid}/0")
            it.left, it.refusal = 0, None

    def _takes_no_quota(self, places: _Places) -> bool:
        return tuple(self.quota.flavors(places.pods.shape.namespace)) == ANY_FLAVOR

    def _buy_for(self, places: _Places, followers: Sequence[_Places]) -> None:
        """Plans purchases for pods of a class; `followers` are classes that have to stand where its pods stand."""
        if not places.left or _is_lasting(places):
            return
        with concerning(places.subject):
            places.refusal = batching_refusal() if self._batched else None
            if not self._batched:
                self._take(places, may_buy=True, buys=True, followers=followers)

    def names(self) -> Mapping[str, str]:
        """Returns what people call those for whom something is bought, by the uid under which it is noted."""
        own = {uid: places.pods.pods[0].key for places in self._waiting for uid in places.bought}
        return {**own, **self.spare.names}

    def claims(self) -> Iterator[PlacedGang]:
        """Yields what is bought, after the joint purchase."""
        own = (uid for places in self._waiting for uid in places.bought)
        return (self.backend.placed[uid] for uid in (*own, *self.spare.names))

    def news(self) -> Iterator[NominatePods]:
        """Yields what was found for the pods, where that is not what was found before."""
        if (found := self.verdicts()) != self.snapshot.pod_verdicts:
            yield NominatePods(found)

    def verdicts(self) -> Mapping[str, PodVerdict]:
        """Returns what was found for every pod, by uid; what says the same as before keeps its time."""
        before, found = self.snapshot.pod_verdicts, dict[str, PodVerdict]()
        for places in self._waiting:
            for pod, verdict in self._of_class(places):
                found[pod.uid] = _since(verdict, before.get(pod.uid))
        return found

    # -- one class ----------------------------------------------------------------------------------------------------

    def _take(self, places: _Places, *, may_buy: bool, buys: bool, followers: Sequence[_Places] = ()) -> None:
        """Takes places for as many pods of a class as there are any; notes why there is none for the rest.

        With `may_buy` and without `buys` nothing is taken where something would have to be bought: pods that are spread
        would else go to the domains alone that stand. No machine is cut anew for them.
        """
        capacity = self.backend.planner.capacity
        before = capacity.may_buy, capacity.recuts
        capacity.may_buy, capacity.recuts = capacity.may_buy and may_buy, []
        refusals: list[Refusal] = []
        try:
            for flavor in self.quota.flavors(places.pods.shape.namespace):
                refused = None
                while places.left and refused is None:
                    refused = self._take_most(places, flavor, followers, buys=buys)
                refusals += [refused] if refused is not None else []
        finally:
            capacity.may_buy, capacity.recuts = before
        if places.left:
            places.refusal = min(refusals, key=lambda it: it.reason not in _OF_QUOTA, default=None)

    def _take_most(self, places: _Places, flavor: str, followers: Sequence[_Places], *, buys: bool) -> Refusal | None:
        """Takes places of a flavor for as many of the pods as there are; returns why there is none."""
        state, capacity = self.backend.state, self.backend.planner.capacity
        room = self.quota.room(replace(places.pods.shape, count=places.left), flavor)
        if isinstance(room, Refusal):
            return room
        mark = state.mark()
        need = self._need(places, flavor, room)
        beside = [self._need(each, flavor, each.left) for each in followers] if room == places.left else []
        found, count = place_leading(state, capacity, places.pods.uid, need, beside) if beside else None, room
        if found is None or isinstance(found, Refusal):  # perhaps there is a place for some of them
            found, count = place_most(state, capacity, places.pods.uid, need)
        if isinstance(found, Refusal):
            return found
        if buys:  # also what has room on machines of this pass, as the joint purchase may change those
            uid = f"{places.pods.uid}/{len(places.bought)}"
            self.backend.note_pods(uid, found, (self._need(places, flavor, count),))
            places.bought.append(uid)
        elif not found.purchases:
            places.found.append(found)
        else:
            state.undo(mark)
            capacity.give_back(found.purchases)
            return Refusal(Reason.BUYING, "machines are bought for it")
        self.quota.take(places.pods.shape, flavor, count)
        places.left -= count
        return None

    def _need(self, places: _Places, flavor: str, count: int) -> Need:
        need = self.backend.planner.flavors.ordinary(replace(places.pods.shape, count=count), flavor)
        return replace(need, until_s=self.snapshot.now_s) if self.backend.planner.capacity.closing else need

    def _closed(self, pods: WaitingPods) -> Refusal | None:
        """Refuses pods whose queue takes no further work, where their team names one for them."""
        queue = self.quota.queue(pods.shape.namespace)
        binding = binding_of(self.fleet, "", queue) if queue else None
        return takes_no_more(self.snapshot, binding) if binding is not None else None

    def _not_bound(self, pods: WaitingPods) -> Refusal | None:
        """Refuses pods that kube-scheduler does not bind although there seems to be room.

        It sees what is not seen here, and another machine of the kind would help no more. Tried again after a while.
        """
        now_s, nodes = self.snapshot.now_s, self.snapshot.nodes
        for found in filter(None, (self.snapshot.pod_verdicts.get(pod.uid) for pod in pods.pods)):
            if found.reason == Reason.NOT_BOUND and now_s < found.since_s + _doubted_s(found):
                return Refusal(Reason.NOT_BOUND, found.message)
            node = nodes.get(found.node)
            kept = node is None or any(taint.key == FOR_GANGS.key for taint in node.taints)
            if not kept and now_s >= found.since_s + BELIEVED_S:
                words = f"{found.node} seems to have room for it, and kube-scheduler has not bound it there for 2 min"
                return Refusal(Reason.NOT_BOUND, words)
        return None

    def _of_class(self, places: _Places) -> Iterator[tuple[Pod, PodVerdict]]:
        """Yields what was found for each pod of a class; a pod keeps the machine that it was nominated for before."""
        now_s, before = self.snapshot.now_s, self.snapshot.pod_verdicts
        plans = (*places.found, *(self.backend.placed[uid].plan for uid in places.bought))
        seats, nodes = Counter[str](), dict[str, PodVerdict]()
        for assignment in (it for plan in plans for it in plan.assignments):
            slot = assignment.slot
            machine = slot.claim or slot.node
            seats[machine] += assignment.count
            nodes[machine] = PodVerdict(slot.claim, slot.node, since_s=now_s)
        others = []
        for pod in places.pods.pods:
            known = before.get(pod.uid)
            machine = (known.claim or known.node) if known is not None else ""
            if seats[machine] > 0:
                seats[machine] -= 1
                yield pod, nodes[machine]
            else:
                others.append(pod)
        free = seats.elements()
        refusal = places.refusal or Refusal(Reason.NO_OFFER, "no machine was found for it")
        none = PodVerdict(reason=refusal.reason, message=refusal.message, since_s=now_s)
        for pod in others:
            yield pod, nodes.get(next(free, ""), none)


def _is_lasting(places: _Places) -> bool:
    return places.refusal is not None and places.refusal.reason in _LASTING


def _affinity(places: _Places) -> tuple[PodAffinityTerm, ...]:
    return places.pods.shape.constraints.affinity


def _seeks_company(places: _Places) -> bool:
    """Returns whether pods want others on their machine."""
    return any(term.topology_key == HOSTNAME for term in _affinity(places))


def _follows(places: _Places, other: _Places) -> bool:
    """Returns whether pods have to stand on a machine with those of another class."""
    shape = other.pods.shape
    own = dict(shape.labels)
    return any(it.topology_key == HOSTNAME and it.means(shape.namespace, own, {}) for it in _affinity(places))


def _hardest_first(pods: WaitingPods) -> tuple[object, ...]:
    """Those that keep apart first, as others fit beside them; then what asks for most (Karpenter: CPU, then memory)."""
    asked, requests = pods.shape.constraints, pods.shape.requests
    apart = bool(asked.anti_affinity) or any(each.hard for each in asked.spread)
    gpus = sum(gpu_part(requests).values())
    return not apart, -gpus, -requests.get(CPU, 0), -requests.get("memory", 0), pods.pods[0].key


def _since(verdict: PodVerdict, known: PodVerdict | None) -> PodVerdict:
    """Returns a verdict with its history: what says the same as before keeps its time."""
    if known is None or verdict.same_as(known):
        return known or verdict
    return replace(verdict, unbound=known.unbound + (verdict.reason == Reason.NOT_BOUND))


_OF_QUOTA: Final = frozenset({Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_MAX_QUOTA})
"""What a pod is told first where one flavor has no quota left and another no machine."""
_LASTING: Final = frozenset({Reason.UNSUPPORTED, Reason.NOT_BOUND, Reason.QUEUE_STOPPED, Reason.BUDGET_EXHAUSTED})
"""Refusals that nothing bought would change."""


def _unsupported(pods: WaitingPods) -> Refusal | None:
    asked = pods.shape.unsupported
    return Refusal(Reason.UNSUPPORTED, f"{asked[0].path} is not supported: {asked[0].words}") if asked else None
