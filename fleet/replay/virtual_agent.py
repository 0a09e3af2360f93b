"""The agent's deciders on a virtual world, each asked only where something has changed or fallen due.

Who had nothing to say about what has not changed since has nothing to say until something falls due (`deadlines`).
Every six hours all of them are asked about everything, as the agent does every turn: nothing is known to need it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Final

from fleet.actions import Consider, NominatePods
from fleet.deciders import DECIDERS
from fleet.fence import Decided, DecisionFailed, told_apart
from fleet.gangs import lifecycle as gang_lifecycle
from fleet.gangs.transitions import spent
from fleet.nodeclaims import lifecycle as claim_lifecycle
from fleet.nodeclaims.registration import INITIALIZATION_TIMEOUT_S, REGISTRATION_TIMEOUT_S
from fleet.placement.all_devices import under_fleet
from fleet.replay.deadlines import of_gang, of_machine, window_edges
from fleet.replay.effects import carry_out
from fleet.replay.virtual_world import VirtualWorld
from fleet.snapshot import Claim, ClaimState, Gang, GangState, Job, Snapshot
from fleet.snapshot.lookups import machines_held
from model.fleet import Fleet

EVERYTHING_S: Final = 6 * 3600.0
"""From one time that everything is looked at to the next."""
CONSOLIDATION_S: Final = 300.0
"""From one look for machines that could be done without to the next, while there may be any."""
LONGEST_STEP_S: Final = 900.0
"""Steps of time while gangs wait and nothing happens: each is half as long again as the one before."""
MOST_ROUNDS: Final = 200
"""Rounds of the deciders at one instant: more are a mistake of theirs, which the replay names."""
_WORDS: Final = (Consider, NominatePods)
"""Actions that change nothing by themselves."""
_EMPTY: Final = "WhenEmpty"
_NOBODY: Final = frozenset[str]()
_Ask = tuple[Callable[[], bool], Callable[[Snapshot], Iterable[Decided] | None]]
"""Whether a decider may have anything to say, and what it says about what has changed."""


class NeverAtRest(Exception):
    """The deciders go on asking for something at one instant, whatever becomes of it."""


@dataclass(slots=True)
class VirtualAgent:
    """Carries out on a world what the deciders ask for, as soon as they do."""

    fleet: Fleet
    world: VirtualWorld
    look_s: float
    """Waiting gangs are considered no more often than once in so many seconds; 0 = whenever anything changes."""
    failed: list[DecisionFailed] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    """Decider -> how often it was asked."""
    _gangs: set[str] = field(default_factory=set)
    """uids of jobs and gangs to be looked at."""
    _claims: set[str] = field(default_factory=set)
    """Claims to be looked at."""
    _known: dict[str, Claim] = field(default_factory=dict)
    """Claims as they were last seen."""
    _unsettled: set[str] = field(default_factory=set)
    """Claims of which the next step follows from more than what is noticed: looked at every time."""
    _given_up: list[tuple[float, str]] = field(default_factory=list)
    """(when, claim): a heap of those that join, and are looked at when they should have.

    To look at them at every instant instead costs a replay 6 % more instructions (`bench.replay`).
    """
    _pins: dict[str, tuple[GangState, frozenset[str]]] = field(default_factory=dict)
    """Gang -> its state and the claims it is pinned to, as last seen."""
    _claim_of: dict[str, str] = field(default_factory=dict)
    """Instance id, or name of a node -> claim."""
    _silent_about: dict[str, tuple[tuple[object, ...], object]] = field(default_factory=dict)
    """Decider -> what was written to the tables that it has seen and had nothing to say about, and when."""
    _disrupt: bool = True
    """Whether machines are to be looked at for giving back."""
    _everything_s: float = -inf
    _window_s: float = -inf
    """When a window opens or closes next."""
    _scheduled_s: float = -inf
    _consolidated_s: float = -inf
    _consolidate_until_s: float = -inf
    """Until when there may be machines that could be done without."""
    _consolidates: Mapping[str, float] = field(init=False)
    """Pool that may do without machines that are in use -> its quiet time (seconds)."""
    _step_s: float = 1.0
    _aside: dict[str, frozenset[str]] = field(default_factory=dict)
    """Decider -> subjects that it failed on, which it is not asked about again."""
    _asks: Mapping[str, "_Ask"] = field(init=False)
    """Decider -> how it is asked about changes; those that nothing here changes for are asked with all others alone."""

    def __post_init__(self) -> None:
        may_shrink = (pool for pool in self.fleet.node_pools.values() if pool.spec.replicas is None)
        quiet = ((pool.name, pool.spec.disruption) for pool in may_shrink)
        self._consolidates = {it: spec.consolidate_after for it, spec in quiet if spec.consolidation_policy != _EMPTY}
        asks: dict[str, _Ask] = {
            "gangs": (lambda: bool(self._gangs), self._about_gangs),
            "nodeclaims": (lambda: bool(self._claims or self._unsettled), self._about_claims),
            "scheduling": (self._may_schedule, self._about_waiting),
            "disruption": (lambda: self._disrupt or self._looks(), self._about_disruption),
        }
        if self.fleet.mig_layouts:
            asks["mig-layouts"] = (lambda: not self._same("mig-layouts"), partial(DECIDERS["mig-layouts"], self.fleet))
        if any(pool.spec.replicas is not None for pool in self.fleet.node_pools.values()):
            asks["fixed-pools"] = (lambda: not self._same("fixed-pools"), partial(DECIDERS["fixed-pools"], self.fleet))
        self._asks = {name: asks[name] for name in DECIDERS if name in asks}

    def settle(self) -> None:
        """Lets the deciders speak until none has anything more to say at this instant. Raises `NeverAtRest`."""
        everything = self._due()
        self._notice()
        for _ in range(MOST_ROUNDS):
            moved = self._asked_about_everything() if everything else self._asked_about_changes()
            if not moved:
                break
            everything, self._step_s = False, max(1.0, self.look_s)
        else:
            raise NeverAtRest(f"the deciders do not come to rest at instant {self.world.now_s:.0f}")

    def next_s(self) -> float:
        """Returns when they are to be asked again, though nothing happens until then (epoch seconds)."""
        now_s, waiting_s, looking_s = self.world.now_s, inf, inf
        if self.world.pending:
            put_off = self._silent_about.get("scheduling") is None
            waiting_s = self._scheduled_s + self.look_s if put_off else now_s + self._step_s
            self._step_s = min(self._step_s * 1.5, LONGEST_STEP_S)
        if self._consolidate_until_s > now_s:
            looking_s = self._consolidated_s + CONSOLIDATION_S
        return max(now_s, min(waiting_s, looking_s, self._everything_s + EVERYTHING_S, self._window_s))

    def _due(self) -> bool:
        """Returns whether everything is to be looked at now; what was silent is asked again once time has passed."""
        now_s = self.world.now_s
        if now_s >= self._scheduled_s + self._step_s:
            self._silent_about.clear()
        if now_s >= self._window_s:
            self._window_s = min(window_edges(self.fleet, now_s), default=inf)
            self._disrupt = True
        if now_s < self._everything_s + EVERYTHING_S:
            return False
        self._everything_s = now_s
        return True

    def _asked_about_everything(self) -> bool:
        """Asks all about all that they see, of who waits as often as ever. Returns whether one has moved anything."""
        asks: dict[str, _Ask] = {
            name: ((lambda: True), partial(decide, self.fleet)) for name, decide in DECIDERS.items()
        }
        asks["scheduling"] = self._asks["scheduling"]
        return self._asked(asks)

    def _asked_about_changes(self) -> bool:
        """Asks the deciders that may have anything to say, by what costs nothing to find out."""
        return self._asked(self._asks)

    def _asked(self, asks: Mapping[str, "_Ask"]) -> bool:
        return sum([self._spoken(name, about) for name, (may, about) in asks.items() if may()]) > 0

    def _spoken(self, name: str, ask: Callable[[Snapshot], Iterable[Decided] | None]) -> bool:
        """Asks one decider; returns whether it has moved anything."""
        decided = ask(under_fleet(self.fleet, self.world.snapshot(self._aside.get(name, _NOBODY))))
        if decided is None:
            return False
        self.asked[name] += 1
        actions, failed = told_apart(decided)
        if failed:
            self.failed += failed
            self._aside[name] = self._aside.get(name, _NOBODY) | {it.subject for it in failed}
        for action in actions:
            carry_out(self.world, action)
            self.world.note(action)
        if actions:
            self._notice()
        return any(not isinstance(action, _WORDS) for action in actions)

    # -- who is asked about what --

    def _may_schedule(self) -> bool:
        """Returns whether a gang waits, it is not too early to look at it, and anything is another since the last time.

        Where it is too early, that is noted by not having seen what is there now.
        """
        early = self.world.now_s < self._scheduled_s + self.look_s
        if not self.world.pending or (early and "scheduling" not in self._silent_about) or self._same("scheduling"):
            return False
        if early:
            del self._silent_about["scheduling"]
        return not early

    def _looks(self) -> bool:
        """Returns whether it is time to look for machines that could be done without."""
        now_s = self.world.now_s
        return now_s < self._consolidate_until_s and now_s >= self._consolidated_s + CONSOLIDATION_S

    def _about_gangs(self, seen: Snapshot) -> Iterable[Decided]:
        uids, self._gangs = self._gangs, set()
        return gang_lifecycle.decide(self.fleet, seen, among=uids)

    def _about_claims(self, seen: Snapshot) -> Iterable[Decided] | None:
        names, self._claims = self._claims | self._unsettled, set()
        there = [seen.claims[name] for name in sorted(names) if name in seen.claims]
        return claim_lifecycle.decide_among(self.fleet, seen, there) if there else None

    def _about_waiting(self, seen: Snapshot) -> Iterable[Decided]:
        decided = list(DECIDERS["scheduling"](self.fleet, seen))
        self._scheduled_s = seen.now_s if self.look_s else -inf
        return decided

    def _about_disruption(self, seen: Snapshot) -> Iterable[Decided]:
        self._disrupt, looks = False, self._looks()
        if looks:
            self._consolidated_s = seen.now_s
        return DECIDERS["disruption"](self.fleet, seen)

    def _same(self, name: str) -> bool:
        """Returns whether a decider has seen the tables as they are at this instant, and notes that it sees them."""
        world = self.world
        tables = world.gangs.writes, world.jobs.writes, world.claims.writes, world.nodes.writes
        now = (*tables, world.now_s), world.shortages
        before, self._silent_about[name] = self._silent_about.get(name), now
        return before is not None and before[0] == now[0] and before[1] is now[1]

    # -- where something has changed --

    def _notice(self) -> None:
        """Finds whom it concerns what has changed since the last time."""
        world = self.world
        while self._given_up and self._given_up[0][0] <= world.now_s:
            self._claims.add(heappop(self._given_up)[1])
        machines = world.claims.news(), world.instances.news(), world.nodes.news()
        if any(machines):
            self._notice_machines(*machines)
        self._notice_pods(world.standing.news())
        gangs, jobs = world.gangs.news(), world.jobs.news()
        for uid in sorted(gangs):
            self._notice_gang(uid)
        for uid in gangs | jobs:
            if not _says_nothing(world.gangs.get(uid), world.jobs.get(uid), world.now_s):
                self._gangs.add(uid)

    def _notice_machines(self, claims: Collection[str], instances: Collection[str], nodes: Collection[str]) -> None:
        touched = [name for name in sorted(claims) if self._notice_claim(name)]
        there = ((name, self.world.nodes.get(name)) for name in nodes)
        machines = (*instances, *(name if node is None else node.instance_id for name, node in there))
        touched += filter(None, (self._claim_of.get(machine) for machine in machines))
        if touched:
            held = machines_held(self.world.snapshot())
            self._claims.update(touched)
            self._gangs.update(gang.uid for name in touched for gang in held.get(name, ()))

    def _notice_pods(self, keys: Collection[str]) -> None:
        """Lets machines be looked at that were kept for pods which have come: the taint that kept others off goes."""
        nodes = {pod.node for key in keys for pod in self.world.standing.get(key) or ()}
        for name in nodes:
            if (node := self.world.nodes.get(name)) is not None and node.taints and name in self._claim_of:
                self._claims.add(self._claim_of[name])

    def _notice_claim(self, name: str) -> bool:
        """Notes what has become of a claim; returns whether it, and gangs on it, are to be looked at."""
        claim, before = self.world.claims.get(name), self._known.get(name)
        if claim is None:
            self._known.pop(name, None)
            self._unsettled.discard(name)
            self._disrupt = True  # it counts no more in the budget of its pool
            return True
        emptied = before is not None and _only_emptied(before, claim)
        if not emptied:
            self._notice_life(name, claim)
        self._stir(claim.node_pool)
        self._known[name] = claim
        # Once only: gangs come and leave for weeks, and what falls due is kept until then.
        noted = () if before is None else tuple(self._due_of(before))
        for at_s in self._due_of(claim):
            if self.world.now_s < at_s < inf and at_s not in noted:
                self.world.later(at_s, partial(self._falls_due, name, at_s))
        return not emptied

    def _notice_life(self, name: str, claim: Claim) -> None:
        """Notes what follows from how far a machine has come, whatever runs there."""
        (self._unsettled.add if _reads_clock(claim) else self._unsettled.discard)(name)
        for at_s in _given_up_at_s(claim):
            heappush(self._given_up, (at_s, name))
        for machine in filter(None, (claim.instance_id, claim.node)):
            self._claim_of[machine] = name
        self._disrupt |= bool(claim.replaces)

    def _falls_due(self, name: str, at_s: float) -> None:
        """Lets machines be looked at, unless what fell due has moved since: the machine is in use again, or gone.

        To look at them all the same costs a replay 4 % more instructions (`bench.replay`).
        """
        claim = self.world.claims.get(name)
        if claim is not None and at_s in self._due_of(claim):
            self._disrupt = True

    def _due_of(self, claim: Claim) -> Iterator[float]:
        return of_machine(claim, self.fleet.node_pools, self.world.bought)

    def _stir(self, pool_name: str) -> None:
        """Notes that for a while machines of a pool may be such that can be done without."""
        if (quiet_s := self._consolidates.get(pool_name)) is not None:
            self._consolidate_until_s = max(self._consolidate_until_s, self.world.now_s + quiet_s + 2 * CONSOLIDATION_S)

    def _notice_gang(self, uid: str) -> None:
        gang = self.world.gangs.get(uid)
        before = self._pins.pop(uid, (GangState.FINISHED, _NOBODY))
        now = before[0], _NOBODY
        if gang is not None:
            now = self._pins[uid] = gang.state, frozenset(pin.claim for pin in gang.pins if pin.claim)
        for name in now[1] | before[1] if now != before else ():
            self._claims.add(name)
            claim = self.world.claims.get(name)
            self._stir(claim.node_pool if claim is not None else "")
        for at_s in of_gang(gang) if gang is not None else ():
            if self.world.now_s < at_s < inf:
                self.world.later(at_s, self._silent_about.clear)


def _says_nothing(gang: Gang | None, job: Job | None, now_s: float) -> bool:
    """Returns whether the life of a gang has no next step, by itself: what its machines bring is noticed with them.

    Both are gone; it waits, and its job is suspended and asks for what it says; its job has just been started and has
    no pods yet; or all of its pods are ready, and it says so.
    """
    if gang is None or job is None:
        return gang is None and job is None
    if job.result or job.deleting:
        return False
    if gang.state is GangState.PENDING:
        alike = (job.queue, job.priority_class, job.pod_sets) == (gang.queue, gang.priority_class, gang.pod_sets)
        return job.suspended and alike and spent(gang, now_s) is None
    if gang.state is not GangState.ADMITTED or job.suspended or gang.replacing_since_s or gang.not_ready_since_s:
        return False
    return gang.pods_ready if job.ready_pods else gang.admitted_at_s == now_s and not job.active_pods


def _only_emptied(before: Claim, now: Claim) -> bool:
    """Returns whether nothing but since when a ready machine is empty has changed, from which no next step follows.

    It is told by its own last step, and what falls due by it is noted. To look at such machines as at all
    others costs a replay 3 % more instructions (`bench.replay`).
    """
    return (
        now.state is ClaimState.READY and now.emptied_at_s != before.emptied_at_s and not now.differs_but_in_use(before)
    )


def _reads_clock(claim: Claim) -> bool:
    """Returns whether the next step of a claim may follow from the others of its launch, from pods, or from the clock.

    Of one that joins it follows from its instance and its node; when it is given up, `_given_up_at_s` says.
    """
    match claim.state:
        case ClaimState.READY:
            return False
        case ClaimState.TERMINATING:
            return bool(claim.adopts or claim.disruption is None or claim.disruption.deadline_s < inf)
        case ClaimState.LAUNCHED | ClaimState.REGISTERED:
            return any((claim.layout, claim.adopts, claim.disruption is not None))
    return True


def _given_up_at_s(claim: Claim) -> Iterable[float]:
    """Yields when a machine that joins is given up (epoch seconds), should it not have come any further until then."""
    if claim.state is ClaimState.LAUNCHED:
        yield claim.launched_at_s + REGISTRATION_TIMEOUT_S
    elif claim.state is ClaimState.REGISTERED:
        yield claim.registered_at_s + INITIALIZATION_TIMEOUT_S
