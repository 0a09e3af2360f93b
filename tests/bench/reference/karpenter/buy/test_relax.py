"""Wishes, in the order in which they are given up."""

from collections.abc import Iterator

from bench.reference.karpenter.buy import (
    KarpenterNode,
    Peers,
    PodSpecification,
    PoolTemplate,
    Spread,
    Weighted,
    solve,
)
from bench.reference.karpenter.buy.relax import SOFT_TAINTS, relaxed
from model import labels
from model.requirements import Requirements
from tests.bench.reference.karpenter.buy.worlds import WARY, at, machine, of, pods

X = of(app="x")
A, B = at(labels.ZONE, "a"), at(labels.ZONE, "b")
NEAR, APART = Peers(labels.ZONE, X), Peers(labels.HOSTNAME, X)
SOFT = Spread(labels.ZONE, X, hard=False)
ASK = PodSpecification(
    labels={"app": "x"},
    required=(A, B),
    preferred=(Weighted(1, A), Weighted(9, B)),
    preferred_affinity=(Weighted(5, NEAR),),
    preferred_anti_affinity=(Weighted(5, APART),),
    spreads=(SOFT, Spread(labels.HOSTNAME, X)),
)


def steps(ask: PodSpecification | None, *, soft_taints: bool) -> Iterator[PodSpecification]:
    while ask is not None:
        yield ask
        ask = relaxed(ask, soft_taints=soft_taints)


def test_one_wish_a_step() -> None:
    _, *rest = steps(ASK, soft_taints=True)
    assert [
        (len(each.required), len(each.preferred_affinity), len(each.preferred_anti_affinity)) for each in rest[:3]
    ] == [(1, 1, 1), (1, 0, 1), (1, 0, 0)]
    assert [each.preferred for each in rest[3:5]] == [(Weighted(1, A),), ()]
    assert [len(each.spreads) for each in rest[5:]] == [1, 1]
    assert [SOFT_TAINTS in each.tolerations for each in rest[5:]] == [False, True]


def test_soft_taints_are_tolerated_only_where_there_are_any() -> None:
    assert all(SOFT_TAINTS not in each.tolerations for each in steps(ASK, soft_taints=False))


def test_what_is_required_is_never_given_up() -> None:
    *_, last = steps(ASK, soft_taints=True)
    assert (last.required, last.spreads) == ((B,), (Spread(labels.HOSTNAME, X),))


def test_preferred_distance_costs_machines() -> None:
    ask = PodSpecification({"cpu": 1}, labels={"app": "x"}, preferred_anti_affinity=(Weighted(1, APART),))
    assert len(solve(pods(ask, 4), [PoolTemplate("pool", (machine("m", 4),))]).claims) == 4


def test_a_preferred_zone_that_cannot_be_had_does_not_matter() -> None:
    ask = PodSpecification({"cpu": 1}, preferred=(Weighted(1, at(labels.ZONE, "nowhere")), Weighted(2, B)))
    (claim,) = solve(pods(ask, 3), [PoolTemplate("pool", (machine("m", 4),))]).claims
    assert claim.requirements.of(labels.ZONE).only == "b"


def test_the_second_term_of_required_affinity_is_tried() -> None:
    ask = PodSpecification({"cpu": 1}, required=(at(labels.ZONE, "nowhere"), B))
    (claim,) = solve(pods(ask, 3), [PoolTemplate("pool", (machine("m", 4),))]).claims
    assert (claim.requirements.of(labels.ZONE).only, len(claim.pods)) == ("b", 3)


def test_a_soft_taint_repels_until_nothing_else_is_left() -> None:
    wary = PoolTemplate("wary", (machine("m", 4),), taints=(WARY,), weight=9)
    assert [c.template for c in solve(pods(PodSpecification({"cpu": 1}), 1), [wary]).claims] == ["wary"]
    both = [wary, PoolTemplate("open", (machine("m", 4),))]
    assert [c.template for c in solve(pods(PodSpecification({"cpu": 1}), 1), both).claims] == ["open"]


def test_no_preference_keeps_a_pod_off_a_node_for_good() -> None:
    nodes = [KarpenterNode("n", {labels.ZONE: "a"}, {"cpu": 9, "pods": 9})]
    ask = PodSpecification({"cpu": 1}, preferred=(Weighted(1, B),), selector=Requirements())
    assert solve(pods(ask, 2), [], nodes).seats == {"n": ("p-00", "p-01")}
