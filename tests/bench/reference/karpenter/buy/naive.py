"""The same order said plainly: pod by pod, claim by claim, type by type, with nothing shared, cached or batched.

Only the values, the steps of relaxation and the algebra of requirements are those of the engine. No reservations.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bench.reference.karpenter.buy import (
    KarpenterNode,
    MachineType,
    Peers,
    PodSpecification,
    PoolTemplate,
    Resident,
    Spread,
    WaitingPod,
)
from bench.reference.karpenter.buy.relax import heaviest, relaxed
from model import labels
from model.kinds import Taint, Toleration
from model.labels import HOSTNAME, WELL_KNOWN, ZONE
from model.requirements import STRICT, Requirement, Requirements

NOWHERE = "hostname-placeholder-0001"


@dataclass
class NaivePlace:
    """A node, or a claim with what it may still become."""

    name: str
    requirements: Requirements
    taints: tuple[Taint, ...]
    free: dict[str, int] | None
    """Of a node."""
    template: PoolTemplate | None = None
    types: tuple[MachineType, ...] = ()
    used: Counter[str] = field(default_factory=Counter)
    pods: list[tuple[str, PodSpecification, Requirements]] = field(default_factory=list)
    """Each with what was known of the place when it came."""
    residents: tuple[Resident, ...] = ()

    def domain(self, key: str, known: Requirements) -> Requirement:
        return known.get(HOSTNAME, Requirement.one_of(self.name)) if key == HOSTNAME else known.of(key)


@dataclass(frozen=True)
class NaiveVerdict:
    """What was decided, as `worlds.seen` shows it: claims in the order they were opened."""

    claims: list[tuple[str, frozenset[str], Counter[str]]]
    seats: dict[str, Counter[str]]
    unplaced: Counter[str]


class Naive:
    def __init__(self, templates: Iterable[PoolTemplate], nodes: Iterable[KarpenterNode]) -> None:
        self.templates = sorted(sorted(templates, key=lambda t: t.name, reverse=True), key=lambda t: -t.weight)
        ordered = sorted(nodes, key=lambda n: (not n.initialized, n.name))
        self.nodes = [
            NaivePlace(
                n.name,
                Requirements.from_labels({HOSTNAME: n.name, **n.labels}),
                n.taints,
                dict(n.free),
                residents=n.residents,
            )
            for n in ordered
        ]
        self.claims: list[NaivePlace] = []
        self.asks: list[PodSpecification] = []
        self.left = {t.name: None if t.remaining is None else dict(t.remaining) for t in self.templates}
        self.soft = any(taint.effect == "PreferNoSchedule" for t in self.templates for taint in t.taints)

    def solve(self, pods: Iterable[WaitingPod]) -> NaiveVerdict:
        waiting = sorted(pods, key=lambda p: _size(p.ask))
        self.asks = [pod.ask for pod in waiting]
        queue: deque[WaitingPod] = deque(waiting)
        failed_at: dict[str, int] = {}
        while queue and failed_at.get(queue[0].name) != len(queue):
            pod = queue.popleft()
            if not self._place(pod):
                queue.append(pod)
                failed_at[pod.name] = len(queue)
        return NaiveVerdict(
            [
                (c.template.name if c.template else "", frozenset(m.name for m in c.types), _kinds(c.pods))
                for c in self.claims
            ],
            {n.name: _kinds(n.pods) for n in self.nodes if n.pods},
            Counter(pod.name.partition("-")[0] for pod in queue),
        )

    def _place(self, pod: WaitingPod) -> bool:
        ask: PodSpecification | None = pod.ask
        while ask is not None:
            if self._try(pod.name, ask):
                return True
            ask = relaxed(ask, soft_taints=self.soft)
        return False

    def _try(self, name: str, ask: PodSpecification) -> bool:
        for place in (*self.nodes, *sorted(self.claims, key=lambda c: len(c.pods))):
            joined = self._joined(place, ask)
            if joined is not None:
                place.requirements, place.types = joined
                self._take(place, name, ask)
                return True
        for template in self.templates:
            types = tuple(m for m in template.machines if self._within(template, m))
            wanted = template.requirements
            fresh = NaivePlace(f"new-{len(self.claims) + 1:04}", wanted, template.taints, None, template, types)
            joined = self._joined(fresh, ask)
            if joined is not None:
                fresh.requirements, fresh.types = joined
                self.claims.append(fresh)
                self._take(fresh, name, ask)
                self._spend(template, fresh.types)
                return True
        return False

    def _within(self, template: PoolTemplate, machine: MachineType) -> bool:
        left = self.left[template.name]
        return left is None or all({**machine.capacity, "nodes": 1}.get(n, 0) <= most for n, most in left.items())

    def _spend(self, template: PoolTemplate, types: Iterable[MachineType]) -> None:
        left = self.left[template.name]
        if left is not None:
            for name in left:
                left[name] -= max({**m.capacity, "nodes": 1}.get(name, 0) for m in types)

    @staticmethod
    def _take(place: NaivePlace, name: str, ask: PodSpecification) -> None:
        place.pods.append((name, ask, place.requirements))
        place.used.update(_takes(ask))

    # -- one pod, one place -------------------------------------------------------------------------------------------

    def _joined(self, place: NaivePlace, ask: PodSpecification) -> tuple[Requirements, tuple[MachineType, ...]] | None:
        """What the place becomes with the pod on it."""
        if not _tolerated(place.taints, ask.tolerations) or self._port_taken(place, ask):
            return None
        for wanted in _alternatives(ask):
            found = self._as(place, ask, wanted)
            if found is not None:
                return found
        return None

    def _as(
        self, place: NaivePlace, ask: PodSpecification, wanted: Requirements
    ) -> tuple[Requirements, tuple[MachineType, ...]] | None:
        if place.free is not None:
            if not place.requirements.compatible(wanted, undefined=STRICT):
                return None
            fits = all(place.free.get(n, 0) - place.used[n] >= amount for n, amount in _takes(ask).items())
            return (
                (place.requirements, ())
                if fits and self._topology(place, ask, place.requirements) is not None
                else None
            )
        if HOSTNAME in wanted and not wanted[HOSTNAME].has(NOWHERE):
            return None
        wanted = Requirements({k: v for k, v in wanted.items() if k != HOSTNAME})
        if not place.requirements.compatible(wanted):
            return None
        narrowed = self._topology(place, ask, place.requirements & wanted)
        if narrowed is None:
            return None
        used = place.used + _takes(ask)
        types = tuple(m for m in place.types if _offered(m, narrowed) and _holds(m, used + _daemons(place.template, m)))
        least = (place.template.requirements if place.template else Requirements()).of(labels.INSTANCE_TYPE).min_values
        return (narrowed, types) if types and len(types) >= (least or 0) else None

    def _topology(self, place: NaivePlace, ask: PodSpecification, requirements: Requirements) -> Requirements | None:
        """The requirements held to the domains that all constraints allow."""
        strict = ask.selector & ask.required[0] if ask.required else ask.selector
        here = {**requirements, HOSTNAME: place.domain(HOSTNAME, requirements)}
        out = requirements
        for key, allowed in self._allowed(ask, strict, here):
            if not allowed:
                return None
            if key != HOSTNAME:
                held = Requirements({key: Requirement(frozenset(allowed))})
                if not out.compatible(held):
                    return None
                out &= held
        return None if {ZONE, labels.CAPACITY_TYPE} & set(out.empty_keys()) else out

    def _allowed(
        self, ask: PodSpecification, strict: Requirements, here: Mapping[str, Requirement]
    ) -> Iterator[tuple[str, set[str]]]:
        for spread in ask.spreads:
            yield spread.key, self._spread(ask, spread, strict, here)
        for term in (*ask.affinity, *(each.term for each in ask.preferred_affinity)):
            yield term.key, self._gathered(ask, term, strict, here)
        for term in (*ask.anti_affinity, *(each.term for each in ask.preferred_anti_affinity)):
            counts = self._counts(term.key, lambda other, term=term: _selects(term, other))
            yield term.key, self._empty(term.key, counts, strict, here)
        for key, holder_term in self._repellers(ask):
            counts = self._counts(key, lambda other, term=holder_term: term in other.anti_affinity)
            yield key, self._empty(key, counts, strict, here)

    def _spread(
        self, ask: PodSpecification, spread: Spread, strict: Requirements, here: Mapping[str, Requirement]
    ) -> set[str]:
        allowed_at = _affinity(ask) if spread.honor_affinity else ()
        tolerant = ask.tolerations if spread.honor_taints else None
        counts = self._counts(
            spread.key, lambda other: _selects(spread, other), decided=True, inside=allowed_at, tolerant=tolerant
        )
        mine = int(_selects(spread, ask))
        lowest = 0
        if spread.key != HOSTNAME:
            possible = [count for domain, count in counts.items() if strict.of(spread.key).has(domain)]
            few = spread.min_domains is not None and len(possible) < spread.min_domains
            lowest = 0 if few else min(possible, default=0)
        domain = here.get(spread.key, Requirement.ANY)
        if spread.key == HOSTNAME:
            counts = {name: counts.get(name, 0) for name in domain.values}
        good = [(c, d) for d, c in counts.items() if domain.has(d) and c + mine - lowest <= spread.max_skew]
        return {min(good)[1]} if good else set()

    def _gathered(
        self, ask: PodSpecification, term: Peers, strict: Requirements, here: Mapping[str, Requirement]
    ) -> set[str]:
        counts = self._counts(term.key, lambda other: _selects(term, other), decided=True)
        domain, mine = here.get(term.key, Requirement.ANY), strict.of(term.key)
        if term.key == HOSTNAME:
            counts = {**counts, **{name: counts.get(name, 0) for name in domain.values}}
            mine = Requirement.ANY
        taken = {d for d, c in counts.items() if c and mine.has(d)}
        if taken or not _selects(term, ask):
            return {d for d in taken if domain.has(d)}
        return set(sorted(d for d in counts if mine.has(d) and domain.has(d))[:1])

    def _empty(
        self, key: str, counts: Mapping[str, int], strict: Requirements, here: Mapping[str, Requirement]
    ) -> set[str]:
        domain = here.get(key, Requirement.ANY)
        if key == HOSTNAME:
            return {name for name in domain.values if not counts.get(name, 0)}
        return {d for d, c in counts.items() if not c and strict.of(key).has(d) and domain.has(d)}

    # -- who is where -------------------------------------------------------------------------------------------------

    def _counts(self, key, counted, *, decided=False, inside=(), tolerant=None) -> dict[str, int]:  # type: ignore[no-untyped-def]
        """Domain -> pods counted. Pods on a claim that may be in several count in none, or, repelling, in all."""
        counts = dict.fromkeys(self._universe(key, tolerant), 0)
        for place in (*self.nodes, *self.claims):
            if tolerant is not None and not _tolerated(place.taints, tolerant):
                continue
            standing = [(each, place.requirements, each.count) for each in place.residents]
            if place.free is not None and key != HOSTNAME and _passes(place, place.requirements, inside):
                counts |= {domain: counts.get(domain, 0) for domain in _decided(place.requirements.of(key))}
            for each, known, count in (*standing, *((ask, known, 1) for _, ask, known in place.pods)):
                domains = _decided(place.domain(key, known))
                if not counted(each) or not _passes(place, known, inside) or (decided and len(domains) > 1):
                    continue
                for domain in domains:
                    counts[domain] = counts.get(domain, 0) + count
        return counts

    def _universe(self, key: str, tolerant: tuple[Toleration, ...] | None) -> set[str]:
        if key == HOSTNAME:
            return set()
        found: set[str] = set()
        for template in self.templates:
            if tolerant is not None and not _tolerated(template.taints, tolerant):
                continue
            wanted = template.requirements.of(key)
            found |= set() if wanted.complement else set(wanted.values)
            for machine in template.machines:
                if _offered(machine, template.requirements):
                    found |= {v for v in _described(machine).of(key).values if wanted.has(v)}
        return found

    def _repellers(self, ask: PodSpecification) -> list[tuple[str, Peers]]:
        """Terms of all pods, those that wait included, which select this one."""
        everybody = (*(each for place in self.nodes for each in place.residents), *self.asks)
        terms = dict.fromkeys(term for each in everybody for term in each.anti_affinity if _selects(term, ask))
        return [(term.key, term) for term in terms]

    def _port_taken(self, place: NaivePlace, ask: PodSpecification) -> bool:
        there = [*place.residents, *(other for _, other, _ in place.pods)]
        return any(mine.conflicts(port) for mine in ask.host_ports for each in there for port in each.host_ports)


def _daemons(template: PoolTemplate | None, machine: MachineType) -> Counter[str]:
    """What daemons take of a machine of the type."""
    total: Counter[str] = Counter()
    for each in template.daemons if template else ():
        wary = Toleration(operator="Exists", effect="PreferNoSchedule")
        if template is None or not _tolerated(template.taints, (*each.tolerations, wary)):
            continue
        for wanted in each.alternatives or (Requirements(),):
            both = template.requirements & wanted
            own = _described(machine)
            here = all(both.of(key).satisfiable_with(value) for key, value in own.items())
            if template.requirements.compatible(wanted) and here:
                total.update({**each.requests, "pods": 1})
                break
    return total


def _size(ask: PodSpecification) -> tuple[int, int]:
    return -ask.requests.get("cpu", 0), -ask.requests.get("memory", 0)


def _takes(ask: PodSpecification) -> Counter[str]:
    return Counter({**{n: amount for n, amount in ask.requests.items() if amount}, "pods": 1})


def _kinds(pods: Iterable[tuple[str, PodSpecification, Requirements]]) -> Counter[str]:
    return Counter(name.partition("-")[0] for name, _, _ in pods)


def _passes(place: NaivePlace, known: Requirements, inside: tuple[Requirements, ...]) -> bool:
    undefined = STRICT if place.free is not None else WELL_KNOWN
    return not inside or any(known.compatible(each, undefined=undefined) for each in inside)


def _decided(domain: Requirement) -> frozenset[str]:
    return frozenset() if domain.complement else domain.values


def _selects(what: Spread | Peers, who: PodSpecification | Resident) -> bool:
    return what.selector is not None and what.selector.matches(who.labels)


def _tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    return all(any(each.tolerates(taint) for each in tolerations) for taint in taints)


def _alternatives(ask: PodSpecification) -> list[Requirements]:
    wanted = ask.selector & ask.required[0] if ask.required else ask.selector
    liked = heaviest(ask.preferred)
    wanted = wanted if liked is None else wanted & liked
    return [wanted & each for each in ask.volumes] or [wanted]


def _affinity(ask: PodSpecification) -> tuple[Requirements, ...]:
    if ask.required:
        return tuple(ask.selector & term for term in ask.required)
    return (ask.selector,) if ask.selector else ()


def _described(machine: MachineType) -> Requirements:
    offers = {
        ZONE: Requirement(frozenset(o.zone for o in machine.offerings)),
        labels.CAPACITY_TYPE: Requirement(frozenset(o.capacity_type for o in machine.offerings)),
    }
    return Requirements({**offers, **machine.requirements})


def _offered(machine: MachineType, wanted: Requirements) -> bool:
    own = all(wanted.of(k).satisfiable_with(v) for k, v in _described(machine).items())
    return own and any(
        wanted.of(ZONE).has(o.zone) and wanted.of(labels.CAPACITY_TYPE).has(o.capacity_type) for o in machine.offerings
    )


def _holds(machine: MachineType, used: Mapping[str, int]) -> bool:
    return all(machine.allocatable.get(name, 0) >= amount for name, amount in used.items())


def without_reservations(templates: Iterable[PoolTemplate]) -> tuple[PoolTemplate, ...]:
    """The same pools with nothing paid for already."""

    def bare(machine: MachineType) -> MachineType:
        return replace(machine, offerings=tuple(o for o in machine.offerings if not o.reservation_id))

    return tuple(replace(t, machines=tuple(map(bare, t.machines))) for t in templates)
