"""Places pods that have to follow others onto their machine, where there is room for all of them together.

A pod with required pod affinity by host stands where a pod that it means stands. Whoever places those first, each where
it costs least, finds out too late that the others have no room there. So a leader and its part of the followers are
looked for as one large pod; what comes of it is taken if kube-scheduler's filter accepts it pod by pod.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TypeVar

from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS, ClusterState, NodeAssignment, NodeSlot, room_in
from fleet.placement.neighbours import Neighbours
from fleet.placement.offering_columns import DIGITS
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan, hardest_first
from fleet.placement.pod_filter import PodFilter, pod_filter
from fleet.reasons import Refusal
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import near_each_other
from fleet.snapshot.constraints import PodConstraints
from model.kinds import RequirementTerm
from model.labels import HOSTNAME

_FIELD = "spec.affinity.podAffinity"
_MOST_HOSTS = 8
"""Numbers of leaders that are tried for the followers to stand beside; all of them are tried, too."""
_Affinity = tuple[tuple[RequirementTerm, ...], ...]
"""Alternatives, and of each the terms that all have to hold."""
_Shares = tuple[tuple[int, ...], ...]
"""For each leader in turn how many pods of each follower stand beside it."""
_Names = Mapping[str, Sequence[str]]
"""Name of a pod set -> names of others."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HostCompany:
    """A `HostCompany` are pod sets of a gang whose pods share machines: each follower stands beside a leader."""

    leaders: tuple[tuple[Need, int], ...]
    """Who may stand first, and how many pods of it at once: one, or all that want to be on one machine."""
    followers: tuple[Need, ...]
    """Whoever follows another follower comes after it."""

    @property
    def leading(self) -> list[Need]:
        """Returns the leaders."""
        return [need for need, _ in self.leaders]

    @property
    def needs(self) -> dict[str, Need]:
        """Returns all of them by name, each after those beside whom it may stand."""
        return {need.pod_set.name: need for need in (*self.leading, *self.followers)}

    @property
    def units(self) -> list[tuple[Need, int]]:
        """Returns each leader, with its pods that stand at once."""
        return [(need, once) for need, once in self.leaders for _ in range(need.pod_set.count // once)]


@dataclass(frozen=True, slots=True)
class _Party:
    """A `_Party` are pods of several needs that are looked for as one pod, and `count` how often."""

    members: tuple[tuple[Need, int], ...]
    """The leader and those who follow it, with the pods of each."""
    count: int

    @property
    def needs(self) -> list[Need]:
        """Returns whose pods they are, the leader first."""
        return [need for need, _ in self.members]

    @property
    def pods(self) -> dict[str, int]:
        """Returns how many pods of each pod set it has, by name."""
        return {need.pod_set.name: pods for need, pods in self.members}


def place_company(
    state: ClusterState, capacity: BuyableCapacity, gang: str, needs: Sequence[Need]
) -> PlacementPlan | Refusal:
    """Places a gang as `place_gang`; where that finds nothing and pods follow others by host, all of these together."""
    found = place_gang(state, capacity, gang, needs)
    if isinstance(found, PlacementPlan) or not any(stands_by_others(need.pod_set) for need in needs):
        return found
    companies, waiting = host_companies(state.neighbours, needs)
    together = _placed_together(state, capacity, gang, needs, companies) if companies else None
    return together or replace(found, message="; ".join((found.message, *_told(needs, companies, waiting))))


def place_leading(
    state: ClusterState, capacity: BuyableCapacity, uid: str, need: Need, followers: Sequence[Need]
) -> PlacementPlan | Refusal:
    """Places pods where those who have to follow them onto their machines would find room as well.

    Only they are placed. Where no machines hold all of them it is tried with the first half of the followers, then with
    a quarter, and so on; where none fits, they go where they would go by themselves.
    """
    named = [replace(it, pod_set=replace(it.pod_set, name=str(n))) for n, it in enumerate((need, *followers))]
    mark, companies = state.mark(), host_companies(state.neighbours, named)[0]
    found = _placed_together(state, capacity, uid, named, companies) if companies else None
    if found is None:
        fewer = followers[: len(followers) // 2]
        return place_leading(state, capacity, uid, need, fewer) if fewer else place_gang(state, capacity, uid, [need])
    state.undo(mark)
    leader = named[0].pod_set.name
    own = [replace(it, pod_set=need.pod_set.name) for it in found.assignments if it.pod_set == leader]
    for it in own:
        _make_known(state, it.slot)
        state.place(it.slot, need.pod_set, it.count)
    return replace(found, assignments=tuple(own))  # every machine that is bought is that of a leader


def _make_known(state: ClusterState, slot: NodeSlot) -> None:
    """Adds a machine that is to be bought where it is not there yet."""
    if slot.name not in state.slots:
        state.add(slot)


# -- who follows whom -------------------------------------------------------------------------------------------------


def host_companies(neighbours: Neighbours, needs: Sequence[Need]) -> tuple[list[HostCompany], list[str]]:
    """Returns the companies of a gang, and the sets whose pods wait for each other: none of them may stand first."""
    by_name = {need.pod_set.name: need for need in sorted(needs, key=hardest_first)}
    meant = {name: [to for to in by_name if _follows(neighbours, by_name[name], by_name[to])] for name in by_name}
    companies, waiting = [], list[str]()
    for joined in _all_joined(meant):
        if leaders := _first_of(joined, meant):
            companies.append(_company(leaders, joined, by_name, meant))
        else:
            waiting += joined
    return companies, waiting


def _first_of(joined: Sequence[str], meant: _Names) -> list[str]:
    """Returns who may stand first: all who mean nobody else, or one whose pods want to be on one machine."""
    free = [name for name in joined if {name}.issuperset(meant[name])]
    return free or [name for name in joined if name in meant[name]][:1]


def _company(leaders: Sequence[str], joined: Sequence[str], by_name: Mapping[str, Need], meant: _Names) -> HostCompany:
    once = {name: by_name[name].pod_set.count if name in meant[name] else 1 for name in leaders}
    after = tuple(by_name[name] for name in _in_turn(leaders, joined, meant))
    return HostCompany(tuple((by_name[name], once[name]) for name in leaders), after)


def stands_by_others(pods: PodSet) -> bool:
    """Returns whether pods have to stand on the machine of some pods."""
    terms = pods.constraints.affinity
    return bool(terms) and any(term.topology_key == HOSTNAME for term in terms)


def follows_onto(pods: PodSet, other: PodSet) -> bool:
    """Returns whether the machine of a pod of the other set would do for pods that have to stand by others.

    Where terms select namespaces by labels, which are not known here, it is not said to do.
    """
    own, terms = dict(other.labels), pods.constraints.affinity
    return stands_by_others(pods) and all(term.means(other.namespace, own, {}) for term in terms)


def _follows(neighbours: Neighbours, need: Need, other: Need) -> bool:
    """Returns whether pods have to stand on the machine of a pod, and one of the other set would do."""
    terms, kind = need.pod_set.constraints.affinity, neighbours.kind_of(other.pod_set)
    return stands_by_others(need.pod_set) and all(neighbours.means(term, kind) for term in terms)


def _all_joined(follows: _Names) -> Iterator[list[str]]:
    """Yields the sets that are tied to each other, where these are several."""
    left = list(follows)
    while left:
        joined = _joined(left[0], follows)
        left = [name for name in left if name not in joined]
        if len(joined) > 1:
            yield joined


def _joined(first: str, follows: _Names) -> list[str]:
    """Returns a set with all that it is tied to, whoever follows whom, in the order of `follows`."""
    joined, before = {first}, 0
    while len(joined) > before:
        before = len(joined)
        for name, others in follows.items():
            if name in joined or not joined.isdisjoint(others):
                joined |= {name, *others}
    return [name for name in follows if name in joined]


def _in_turn(leaders: Iterable[str], joined: Iterable[str], follows: _Names) -> Iterator[str]:
    """Yields the followers, each after one whom it follows."""
    there = set(leaders)
    left = [name for name in joined if name not in there]
    while left:
        name = next((it for it in left if not there.isdisjoint(follows[it])), left[0])
        left.remove(name)
        there.add(name)
        yield name


def _told(needs: Iterable[Need], companies: Sequence[HostCompany], waiting: Sequence[str]) -> Iterator[str]:
    """Yields what a refusal says of who has to share a machine with whom, and by which field."""
    for it in companies:
        leaders, followers = _listed(it.leading), _listed(it.followers)
        yield f"{_FIELD} keeps pods of {followers} on machines of {leaders}, and none found have room for all of them"
    if waiting:
        yield f"{_FIELD}: pods of {' and '.join(waiting)} wait for each other, and none of them may be the first"
    there = set(waiting).union(*(company.needs for company in companies))
    left = (need.pod_set for need in needs if need.pod_set.name not in there and not near_each_other(need.pod_set))
    for pods in filter(stands_by_others, left):
        yield f"{_FIELD} keeps pods of {pods.name} on machines of pods that are not of this gang"


def _listed(needs: Iterable[Need]) -> str:
    return " and ".join(need.pod_set.name for need in needs)


# -- all of them together ---------------------------------------------------------------------------------------------


def _placed_together(
    state: ClusterState, capacity: BuyableCapacity, gang: str, needs: Sequence[Need], companies: Sequence[HostCompany]
) -> PlacementPlan | None:
    """Returns the cheapest plan under which pods that share machines are looked for as one, and takes it.

    The first that buys nothing is taken at once; no machine is cut anew for them.
    """
    joined = {name: need for it in companies for name, need in it.needs.items()}
    rest = [need for need in sorted(needs, key=hardest_first) if need.pod_set.name not in joined]
    recuts, capacity.recuts = capacity.recuts, []
    try:
        return _cheapest(state, capacity, gang, _to_try(state, companies, gang), [*joined.values(), *rest])
    finally:
        capacity.recuts = recuts


def _to_try(state: ClusterState, companies: Iterable[HostCompany], gang: str) -> list[list[_Party]]:
    """Returns the parties of all companies, one way after the other; a company with fewer ways stays at its last."""
    ways = [[_parties(it, shares) for shares in _ways(state, it, gang)] for it in companies]
    return [
        list(chain.from_iterable(of_one[min(number, len(of_one) - 1)] for of_one in ways))
        for number in range(max(map(len, ways)))
    ]


def _cheapest(
    state: ClusterState,
    capacity: BuyableCapacity,
    gang: str,
    to_try: Iterable[Sequence[_Party]],
    ordered: Sequence[Need],
) -> PlacementPlan | None:
    best: tuple[float, Sequence[_Party]] | None = None
    for parties in to_try:
        mark = state.mark()
        if (plan := _tried(state, capacity, gang, parties, ordered)) is None:
            continue
        if not plan.purchases:
            return plan
        state.undo(mark)
        capacity.give_back(plan.purchases)
        if best is None or round(plan.cost_usd_h, DIGITS) < best[0]:
            best = round(plan.cost_usd_h, DIGITS), parties
    return _tried(state, capacity, gang, best[1], ordered) if best is not None else None


def _parties(company: HostCompany, shares: _Shares) -> list[_Party]:
    """Returns the parties of the first leaders with their shares, and of the others alone; equal ones are one."""
    units, found = company.units, Counter[tuple[int, tuple[int, ...]]]()
    first = {need.pod_set.name: at for at, (need, _) in reversed(list(enumerate(units)))}
    for at, (need, _) in enumerate(units):
        found[first[need.pod_set.name], shares[at] if at < len(shares) else ()] += 1
    return [
        _Party((units[at], *((it, pods) for it, pods in zip(company.followers, share, strict=False) if pods)), count)
        for (at, share), count in found.items()
    ]


def _ways(state: ClusterState, company: HostCompany, gang: str) -> Iterator[_Shares]:
    """Yields the ways to try: all followers beside one leader, two, ...; then by the room of machines that stand."""
    counts, most = [need.pod_set.count for need in company.followers], len(company.units)
    for hosts in sorted({*range(1, min(most, _MOST_HOSTS) + 1), most}):
        yield tuple(tuple(count // hosts + (at < count % hosts) for count in counts) for at in range(hosts))
    if len(counts) == 1:
        yield from _by_room(sorted(_rooms(state, company, gang), reverse=True)[:most], counts[0], most)


def _by_room(rooms: Sequence[int], left: int, most: int) -> Iterator[_Shares]:
    """Yields shares that fill the roomiest machines; before the last one, what is left beside one leader more."""
    shares: _Shares = ()
    for room in rooms:
        shares, left = (*shares, (min(room, left),)), left - min(room, left)
        if left and len(shares) < min(most, _MOST_HOSTS):
            yield (*shares, (left,))
    if shares and not left:
        yield shares


def _rooms(state: ClusterState, company: HostCompany, gang: str) -> Iterator[int]:
    """Yields how many followers would stand beside a leader, for each machine that would take any."""
    [(leader, once), *_], [follower] = company.leaders, company.followers
    rules = pod_filter(state.neighbours, leader.pod_set)
    for slot in state.slots.values():
        if slot.only_for and gang not in slot.only_for:
            continue
        room = _room_beside(slot, leader.pod_set, once, follower.pod_set)
        if room and _may_stand(slot, leader, rules) and follower.accepts(slot):
            yield room


def _room_beside(slot: NodeSlot, leader: PodSet, once: int, follower: PodSet) -> int:
    """Returns how many followers a machine has room for beside so many pods of a leader; 0 without room for these."""
    if slot.room_for(leader.requests) < once:
        return 0
    taken = {PODS: once, **{name: once * amount for name, amount in leader.requests.items()}}
    left = {name: amount - taken.get(name, 0) for name, amount in slot.free.items()}
    return room_in(left, follower.requests)


def _may_stand(slot: NodeSlot, need: Need, rules: PodFilter | None) -> bool:
    """Returns whether a machine will do for a pod, apart from its room."""
    return need.accepts(slot) and (rules is None or rules.obstacle(slot) is None)


def _tried(
    state: ClusterState, capacity: BuyableCapacity, gang: str, parties: Sequence[_Party], needs: Sequence[Need]
) -> PlacementPlan | None:
    """Returns the plan for a gang whose parties are looked for as single pods, and takes it; None where there is none.

    None as well where kube-scheduler's filter would not let the pods come in the order of the needs; everything is as
    before then.
    """
    large = {f"party/{number}": party for number, party in enumerate(parties)}
    together = set[str]().union(*(party.pods for party in parties))
    rest = [need for need in needs if need.pod_set.name not in together]
    mark = state.mark()
    found = place_gang(state, capacity, gang, [*map(_as_one, large, parties), *rest])
    if isinstance(found, Refusal):
        return None
    state.undo(mark)
    plan = replace(found, assignments=_taken_apart(found.assignments, large))
    if all(_stand(state, need, plan) for need in needs):
        return plan
    state.undo(mark)
    capacity.give_back(plan.purchases)
    return None


def _taken_apart(assignments: Iterable[NodeAssignment], parties: Mapping[str, _Party]) -> tuple[NodeAssignment, ...]:
    """Returns the assignments with those of a party, by name, as those of its members."""
    stands = Counter[tuple[str, NodeSlot]]()
    for it in assignments:
        members = parties[it.pod_set].pods if it.pod_set in parties else {it.pod_set: 1}
        for name, pods in members.items():
            stands[name, it.slot] += pods * it.count
    return tuple(NodeAssignment(*where, count) for where, count in stands.items())


def _stand(state: ClusterState, need: Need, plan: PlacementPlan) -> bool:
    """Puts the pods of a need where a plan has them, one by one; returns whether each of them may stand there."""
    rules, pods = pod_filter(state.neighbours, need.pod_set), need.pod_set
    for it in (it for it in plan.assignments if it.pod_set == pods.name):
        _make_known(state, it.slot)
        for _ in range(it.count):
            if it.slot.room_for(pods.requests) <= 0 or not _may_stand(it.slot, need, rules):
                return False
            state.place(it.slot, pods, 1)
    return True


def _as_one(name: str, party: _Party) -> Need:
    """Returns the need of one pod that asks for what a party asks for together, and stands where all may stand."""
    needs = party.needs
    leader = needs[0]
    if sum(party.pods.values()) == 1:
        return replace(leader, pod_set=replace(leader.pod_set, name=name, count=party.count))
    return replace(
        leader,
        pod_set=_pods_as_one(name, party),
        node_labels=_all_of(need.node_labels for need in needs),
        pools=_common(need.pools for need in needs),
        charged=any(need.charged for need in needs),
        any_node=all(need.any_node for need in needs),
        until_s=max(need.until_s for need in needs),
    )


def _pods_as_one(name: str, party: _Party) -> PodSet:
    sets, requests = [need.pod_set for need in party.needs], Counter[str]()
    for need, pods in party.members:
        requests.update({PODS: pods, **{key: amount * pods for key, amount in need.pod_set.requests.items()}})
    affinity = reduce(_both, (pods.required_affinity for pods in sets))
    return replace(
        sets[0],
        name=name,
        count=party.count,
        requests=dict(requests),
        node_selector=_all_of(pods.node_selector for pods in sets),
        required_affinity=tuple(filter(None, affinity)),
        tolerations=_common(pods.tolerations for pods in sets),
        constraints=_constraints_of(sets),
    )


def _all_of(maps: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return dict(chain.from_iterable(each.items() for each in maps))


def _common(lists: Iterable[Sequence[_T]]) -> tuple[_T, ...]:
    """Returns what is in each, in the order of the first."""
    first, *others = lists
    return tuple(it for it in first if all(it in other for other in others))


def _both(one: _Affinity, other: _Affinity) -> _Affinity:
    """Returns the required affinity of a machine that suits both: any alternative of the one with any of the other."""
    return tuple((*mine, *theirs) for mine in one or ((),) for theirs in other or ((),))


def _constraints_of(sets: Sequence[PodSet]) -> PodConstraints:
    """Returns what the leader asks, and what its followers ask of machines and of others beside that."""
    every = [pods.constraints for pods in sets]
    return replace(
        every[0],
        anti_affinity=tuple(chain.from_iterable(it.anti_affinity for it in every)),
        host_ports=tuple(chain.from_iterable(it.host_ports for it in every)),
        claims=tuple(chain.from_iterable(it.claims for it in every)),
        ephemeral=tuple(chain.from_iterable(it.ephemeral for it in every)),
    )
