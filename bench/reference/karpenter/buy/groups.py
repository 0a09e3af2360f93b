"""What of the pods' topology is counted, and where (`topologygroup.go`, `topology.go`).

A group counts pods by the domain of one label key. For the hostname every machine is a domain of its own, counted in an
array; all other keys have a table of domains. Groups are shared by all pods whose constraint is the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from bench.reference.karpenter.buy import domains
from bench.reference.karpenter.buy.fronts import MANY
from bench.reference.karpenter.buy.rows import Ints
from bench.reference.karpenter.buy.taints import tolerated
from bench.reference.karpenter.buy.values import HostPort
from model.kinds import Taint, Toleration
from model.labels import HOSTNAME, WELL_KNOWN
from model.requirements import STRICT, Requirement, Requirements


class Sort(Enum):
    """What a group asks of the counts."""

    SPREAD = "spread"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    INVERSE = "inverse anti-affinity"
    """Counts the pods that repel, wherever they could be, for those they repel."""
    PORT = "host port"


class Filter(NamedTuple):
    """Which machines a spread counts on: any of `alternatives`, and taints where they are honoured."""

    alternatives: tuple[Requirements, ...] = ()
    """None = every machine."""
    tolerations: tuple[Toleration, ...] | None = None
    """None = taints do not matter."""

    def passes(self, labels: Requirements, taints: tuple[Taint, ...], *, bought: bool) -> bool:
        """Whether a machine with these labels counts; one that is to be bought may leave well-known labels open."""
        undefined = WELL_KNOWN if bought else STRICT
        if self.alternatives and not any(labels.compatible(each, undefined=undefined) for each in self.alternatives):
            return False
        return self.tolerations is None or tolerated(taints, self.tolerations)


EVERYWHERE = Filter()


class Key(NamedTuple):
    """What makes two constraints one group."""

    sort: Sort
    key: str
    namespaces: frozenset[str] = frozenset()
    selector: Requirements | None = None
    max_skew: int = 0
    min_domains: int | None = None
    counts_on: Filter = EVERYWHERE
    port: HostPort | None = None


@dataclass(slots=True, eq=False)
class TopologyGroup:
    """Pods by domain. `on_nodes` and `on_claims` are only used for the hostname, `counts` for all other keys."""

    number: int
    key: Key
    counts: dict[str, int] = field(default_factory=dict)
    on_nodes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    on_claims: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    total: int = 0
    """Pods counted in all, for the hostname."""

    @property
    def by_host(self) -> bool:
        """Whether every machine is a domain of its own."""
        return self.key.key == HOSTNAME

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is one of those it is about."""
        selector = self.key.selector
        return selector is not None and namespace in self.key.namespaces and selector.matches(labels)

    def room(self, pods: Ints, *, mine: bool) -> Ints:
        """How many equal pods each host still takes that has `pods` counted; `mine`: they count themselves."""
        if self.key.sort is Sort.SPREAD:
            left = self.key.max_skew - pods
            return np.maximum(left, 0) if mine else np.where(left >= 0, MANY, 0)
        if self.key.sort is Sort.AFFINITY:
            return np.where(pods > 0, MANY, MANY if mine and not self.total else 0)
        return np.where(pods > 0, 0, 1 if mine else MANY)

    def allowed(self, pod: Requirement, machine: Requirement, *, mine: bool) -> tuple[str, ...]:
        """The domains a pod may go to, of those the machine may be in; none = not there."""
        if self.key.sort is Sort.SPREAD:
            highest = domains.lowest(self.counts, pod, self.key.min_domains) + self.key.max_skew - mine
            best = domains.spread(self.counts, machine, highest)
            return () if best is None else (best,)
        if self.key.sort is Sort.AFFINITY:
            return domains.affinity(self.counts, pod, machine, selected=mine)
        return domains.anti_affinity(self.counts, pod, machine)

    def steady(self, pod: Requirement, *, mine: bool) -> bool:
        """Whether placing equal pods changes nothing of what it allows to them (hosts: beyond what `room` says)."""
        if self.key.sort is Sort.AFFINITY:
            if self.by_host:
                return bool(self.total) or not mine
            return not domains.bootstraps(self.counts, pod, selected=mine)
        return self.by_host or not mine

    def record(self, found: Iterable[str], count: int) -> None:
        """`count` pods that may be in any of the domains found: spread and affinity count only what is decided."""
        known = tuple(found)
        if len(known) > 1 and self.key.sort in {Sort.SPREAD, Sort.AFFINITY}:
            return
        for domain in known:
            self.counts[domain] = self.counts.get(domain, 0) + count

    def record_claims(self, claims: Ints, given: Ints) -> None:
        """Pods given to hosts to be bought."""
        self.on_claims[claims] += given
        self.total += int(given.sum())

    def record_nodes(self, nodes: Ints, given: Ints) -> None:
        """Pods given to hosts that stand."""
        self.on_nodes[nodes] += given
        self.total += int(given.sum())

    def fit(self, nodes: int, claims: int) -> None:
        """Have an entry for every host."""
        if len(self.on_nodes) < nodes:
            self.on_nodes = _longer(self.on_nodes, nodes)
        if len(self.on_claims) < claims:
            self.on_claims = _longer(self.on_claims, claims)


def _longer(array: Ints, size: int) -> Ints:
    out = np.zeros(size, dtype=np.int64)
    out[: len(array)] = array
    return out
