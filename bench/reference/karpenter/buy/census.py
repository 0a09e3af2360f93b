"""All groups of a solve: who heeds which, who is counted by which, and what stands already (`topology.go`)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from bench.reference.karpenter.buy.demands import Demand, alternatives, strictly, to_buy
from bench.reference.karpenter.buy.families import ClaimClass
from bench.reference.karpenter.buy.groups import EVERYWHERE, Filter, Key, Sort, TopologyGroup
from bench.reference.karpenter.buy.rows import InstanceRows, Ints, asked
from bench.reference.karpenter.buy.standing import NodeColumns
from bench.reference.karpenter.buy.taints import tolerated
from bench.reference.karpenter.buy.values import HostPort, Peers, PodSpecification, PoolTemplate, Resident, Spread
from model.labels import HOSTNAME, normalize
from model.requirements import Requirement, Requirements

LabelSet = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels of a pod: all that selectors look at."""


class Census:
    """Groups by key, demands by class and step. Groups count residents when they are made."""

    def __init__(
        self,
        templates: Sequence[PoolTemplate],
        first: Sequence[tuple[InstanceRows, ClaimClass | None]],
        standing: NodeColumns,
    ) -> None:
        self._templates = templates
        self._first = first
        self._standing = standing
        self._universe: dict[str, dict[str, list[int]]] = {}
        self.groups: dict[Key, TopologyGroup] = {}
        self._counting: dict[LabelSet, list[TopologyGroup]] = {}
        self._wanted: dict[Requirements, int] = {}
        self._demands = 0
        self._claims = 0
        self._seated: list[tuple[LabelSet, Ints, Ints]] = []
        self._ports: dict[HostPort, TopologyGroup] = {}
        self.earlier: list[Callable[[TopologyGroup], None]] = []
        """Count what this solve has placed so far into a group that relaxed pods are the first to need."""
        self._settle()

    def prepare(self, asks: Iterable[PodSpecification]) -> None:
        """Make the groups whose pods repel others, before anybody is asked to heed them."""
        for ask in asks:
            for term in ask.anti_affinity:
                self._group(_repelling(term, ask.namespace))
            for port in ask.host_ports:
                self._port(port)

    def demand(self, ask: PodSpecification, resources: Sequence[str]) -> Demand:
        """The ask worked out. Groups it is the first to need are made and have counted what stands."""
        own = [self._group(key) for key in _keys(ask)]
        repelling = [self._group(_repelling(term, ask.namespace)) for term in ask.anti_affinity]
        ports = [self._port(port) for port in sorted(ask.host_ports)]
        wanted = alternatives(ask)
        self._demands += 1
        return Demand(
            number=self._demands,
            ask=ask,
            take=asked(ask.requests, resources),
            wanted=wanted,
            bought=to_buy(wanted, self._numbered),
            strict=strictly(ask),
            rules=tuple(self._rules(ask, own, repelling)),
            selected_by=self._counted(_label_set(ask.namespace, ask.labels)),
            own=(*repelling, *ports),
        )

    def fit(self, claims: int) -> None:
        """Have room for so many hosts in every group."""
        self._claims = claims
        for group in self.groups.values():
            if group.by_host:
                group.fit(len(self._standing), claims)

    def _numbered(self, wanted: Requirements) -> int:
        return self._wanted.setdefault(wanted, len(self._wanted))

    def _rules(
        self, ask: PodSpecification, own: list[TopologyGroup], repelling: list[TopologyGroup]
    ) -> Iterator[tuple[TopologyGroup, bool]]:
        for group in own:
            yield group, group.selects(ask.namespace, ask.labels)
        for group in self.groups.values():
            if group.key.sort is Sort.INVERSE and group.selects(ask.namespace, ask.labels):
                yield group, group in repelling
        for port, group in self._ports.items():
            if any(port.conflicts(mine) for mine in ask.host_ports):
                yield group, True

    def _port(self, port: HostPort) -> TopologyGroup:
        group = self._ports[port] = self._group(Key(Sort.PORT, HOSTNAME, port=port))
        return group

    def _counted(self, who: LabelSet) -> list[TopologyGroup]:
        found = self._counting.get(who)
        if found is None:
            found = [group for group in self.groups.values() if _counts(group, who)]
            self._counting[who] = found
        return found

    def _group(self, key: Key) -> TopologyGroup:
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = TopologyGroup(len(self.groups), key)
            for who, counting in self._counting.items():
                if _counts(group, who):
                    counting.append(group)
            self._survey(group)
        return group

    # -- what stands ----------------------------------------------------------------------------------------------

    def _survey(self, group: TopologyGroup) -> None:
        """The domains there are, and the residents in them."""
        group.fit(len(self._standing), self._claims)
        if not group.by_host:
            for domain, pools in self._domains(group.key.key).items():
                if self._open(group.key.counts_on, pools):
                    group.counts.setdefault(domain, 0)
            names, own = self._standing.domains(group.key.key)
            for position in np.unique(own[(own >= 0) & self._standing.passed(group.key.counts_on)]):
                group.counts.setdefault(names[position], 0)
        for who, nodes, pods in self._seated:
            if _counts(group, who):
                self._standing.count(group, nodes, pods)
        for count in self.earlier:
            count(group)

    def _open(self, counts_on: Filter, pools: list[int]) -> bool:
        wanted = counts_on.tolerations
        return wanted is None or any(tolerated(self._templates[pool].taints, wanted) for pool in pools)

    def _domains(self, key: str) -> dict[str, list[int]]:
        """Domain -> the pools that can buy there."""
        key = normalize(key)
        found = self._universe.get(key)
        if found is None:
            found = self._universe[key] = {}
            for pool, values in enumerate(self._values(key)):
                for value in values:
                    found.setdefault(value, []).append(pool)
        return found

    def _values(self, key: str) -> Iterator[set[str]]:
        for template, (rows, family) in zip(self._templates, self._first, strict=True):
            wanted = template.requirements.of(key)
            values: set[str] = set() if wanted.complement else set(wanted.values)
            if family is not None:
                for value in rows.values_among(key, family.rows):
                    both = wanted & value
                    values |= set() if both.complement else both.values
            yield values

    def _settle(self) -> None:
        """Take in the residents: whom they are, whom they repel, which ports they hold."""
        found: dict[LabelSet, Counter[int]] = {}
        repelled: list[tuple[Key, int, int]] = []
        for index, node in enumerate(self._standing.nodes):
            for resident in node.residents:
                found.setdefault(_label_set(resident.namespace, resident.labels), Counter())[index] += resident.count
                repelled += [(key, index, resident.count) for key in _resident_keys(resident)]
        self._seated = [(who, *_columns(entries)) for who, entries in found.items()]
        for key, index, count in repelled:
            group = self._group(key) if key.port is None else self._port(key.port)
            self._standing.count(group, np.array([index]), np.array([count]))


def _counts(group: TopologyGroup, who: LabelSet) -> bool:
    """Whether the group counts pods with these labels (those that repel or hold ports are counted by owner)."""
    if group.key.sort in {Sort.INVERSE, Sort.PORT}:
        return False
    return group.selects(who[0], dict(who[1]))


def _keys(ask: PodSpecification) -> Iterator[Key]:
    """The groups of the ask's own constraints. What is preferred and not yet relaxed counts as required."""
    for spread in ask.spreads:
        yield _spread_key(ask, spread)
    for term in (*ask.affinity, *(each.term for each in ask.preferred_affinity)):
        yield _peers_key(Sort.AFFINITY, term, ask.namespace)
    for term in (*ask.anti_affinity, *(each.term for each in ask.preferred_anti_affinity)):
        yield _peers_key(Sort.ANTI_AFFINITY, term, ask.namespace)


def _spread_key(ask: PodSpecification, spread: Spread) -> Key:
    selector = spread.selector
    if selector is not None and spread.match_label_keys:
        own = {key: ask.labels[key] for key in spread.match_label_keys if key in ask.labels}
        selector &= Requirements({key: Requirement.one_of(value) for key, value in own.items()})
    return Key(
        Sort.SPREAD,
        normalize(spread.key),
        frozenset((ask.namespace,)),
        selector,
        spread.max_skew,
        spread.min_domains,
        Filter(_affinity(ask) if spread.honor_affinity else (), ask.tolerations if spread.honor_taints else None),
    )


def _affinity(ask: PodSpecification) -> tuple[Requirements, ...]:
    """What node affinity leaves: the selector with any of the required terms."""
    if ask.required:
        return tuple(ask.selector & term for term in ask.required)
    return (ask.selector,) if ask.selector else EVERYWHERE.alternatives


def _peers_key(sort: Sort, term: Peers, namespace: str) -> Key:
    return Key(sort, normalize(term.key), term.namespaces or frozenset((namespace,)), term.selector)


def _repelling(term: Peers, namespace: str) -> Key:
    return _peers_key(Sort.INVERSE, term, namespace)


def _resident_keys(resident: Resident) -> Iterator[Key]:
    for term in resident.anti_affinity:
        yield _repelling(term, resident.namespace)
    for port in sorted(resident.host_ports):
        yield Key(Sort.PORT, HOSTNAME, port=port)


def _label_set(namespace: str, labels: Mapping[str, str]) -> LabelSet:
    return namespace, tuple(sorted(labels.items()))


def _columns(counts: Mapping[int, int]) -> tuple[Ints, Ints]:
    return np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64)
