"""Spread, affinity, anti-affinity and ports, among the pods of a pass and with those that stand."""

from collections import Counter
from typing import Any

import pytest

from bench.reference.karpenter.buy import (
    HostPort,
    KarpenterNode,
    Peers,
    PodSpecification,
    PoolTemplate,
    Resident,
    SchedulingResults,
    Spread,
    WaitingPod,
    solve,
)
from model import labels
from tests.bench.reference.karpenter.buy.worlds import ZONES, at, machine, of, pods

X, Y = of(app="x"), of(app="y")
WIDE = PoolTemplate("pool", (machine("m", 8, zones=("a", "b", "c")),))
FREE = {"cpu": 8000, "pods": 9}


def ask(app: str = "x", **more: Any) -> PodSpecification:
    return PodSpecification({"cpu": 1000}, labels={"app": app}, **more)


def zones(outcome: SchedulingResults) -> Counter[str]:
    found: Counter[str] = Counter()
    for claim in outcome.claims:
        found[claim.requirements.of(labels.ZONE).only or "?"] += len(claim.pods)
    return found


def full(name: str, zone: str, **resident: Any) -> KarpenterNode:
    return KarpenterNode(name, {labels.ZONE: zone}, {}, residents=(Resident(**resident),))


@pytest.mark.parametrize(
    ("spread", "count", "expected"),
    [
        pytest.param(Spread(labels.ZONE, X), 5, [2, 2, 1], id="evenly, the first domain first"),
        pytest.param(Spread(labels.ZONE, Y), 5, [5], id="of others: nothing to spread"),
        pytest.param(Spread(labels.ZONE, None), 5, [5], id="of nobody"),
        pytest.param(Spread(labels.ZONE, X, min_domains=4), 5, [1, 1, 1], id="too few domains: one in each"),
        pytest.param(Spread("unknown", X), 2, [], id="no such domain"),
    ],
)
def test_spread_over_zones(spread: Spread, count: int, expected: list[int]) -> None:
    outcome = solve(pods(ask(spreads=(spread,)), count), [WIDE])
    assert sorted(zones(outcome).values(), reverse=True) == expected


def test_spread_counts_what_stands() -> None:
    nodes = [full("n", "a", labels={"app": "x"}, count=2)]
    assert zones(solve(pods(ask(spreads=(Spread(labels.ZONE, X),)), 2), [WIDE], nodes)) == {"b": 1, "c": 1}


@pytest.mark.parametrize(
    ("honor", "expected"), [(True, {"a": 1, "b": 1, "c": 1}), (False, {"b": 2, "c": 1})], ids=["honor", "ignore"]
)
def test_pods_where_this_one_cannot_go_count_only_if_it_says_so(honor: bool, expected: dict[str, int]) -> None:
    spread = Spread(labels.ZONE, X, honor_affinity=honor)
    nodes = [full("of-no-architecture", "a", labels={"app": "x"}, count=2)]
    outcome = solve(pods(ask(spreads=(spread,), selector=at(labels.ARCH, "arm64")), 3), [WIDE], nodes)
    assert zones(outcome) == expected


def test_residents_of_one_kind_are_all_counted() -> None:
    """However many entries they come in."""
    node = KarpenterNode("n", {labels.ZONE: "a"}, FREE, residents=(Resident({"app": "x"}), Resident({"app": "x"})))
    outcome = solve(pods(ask("y", spreads=(Spread(labels.HOSTNAME, X),)), 1), [WIDE], [node])
    assert (outcome.seats, len(outcome.claims)) == ({}, 1)


def test_spread_with_match_label_keys_tells_revisions_apart() -> None:
    spread = Spread(labels.HOSTNAME, X, match_label_keys=("revision",))
    asks = [PodSpecification({"cpu": 1000}, labels={"app": "x", "revision": each}, spreads=(spread,)) for each in "12"]
    outcome = solve([*pods(asks[0], 2, "old"), *pods(asks[1], 2, "new")], [WIDE])
    assert [len(claim.pods) for claim in outcome.claims] == [2, 2]


def test_affinity_gathers() -> None:
    outcome = solve(pods(ask(affinity=(Peers(labels.ZONE, X),)), 12), [WIDE])
    assert zones(outcome) == {"a": 12}


def test_affinity_to_those_who_are_nowhere_waits_for_them() -> None:
    """The followers are larger and come first; they get their turn once the leader has a place."""
    followers = PodSpecification({"cpu": 2000}, labels={"app": "y"}, affinity=(Peers(labels.ZONE, X),))
    outcome = solve([*pods(followers, 2, "f"), *pods(ask(selector=at(labels.ZONE, "c")), 1, "leader")], [WIDE])
    assert zones(outcome) == {"c": 3}
    assert [unplaced.pods for unplaced in solve(pods(followers, 2), [WIDE]).unplaced] == [("p-00", "p-01")]


def test_affinity_by_host() -> None:
    outcome = solve(pods(ask(affinity=(Peers(labels.HOSTNAME, X),)), 12), [WIDE])
    assert [len(claim.pods) for claim in outcome.claims] == [8]
    assert len(outcome.unplaced[0].pods) == 4


def test_anti_affinity_by_host() -> None:
    outcome = solve(pods(ask(anti_affinity=(Peers(labels.HOSTNAME, X),)), 5), [WIDE])
    assert [len(claim.pods) for claim in outcome.claims] == [1] * 5


def test_anti_affinity_by_zone_buys_one_machine_a_pass() -> None:
    """Nobody knows yet which zone the first one will be in, so it may be any: upstream waits, too."""
    outcome = solve(pods(ask(anti_affinity=(Peers(labels.ZONE, X),)), 3), [WIDE])
    assert ([len(claim.pods) for claim in outcome.claims], len(outcome.unplaced[0].pods)) == ([1], 2)


def test_anti_affinity_holds_for_those_who_did_not_ask() -> None:
    nodes = [
        KarpenterNode("n", {labels.ZONE: "a"}, FREE, residents=(Resident({}, anti_affinity=(Peers(labels.ZONE, X),)),)),
        KarpenterNode("o", {labels.ZONE: "b"}, FREE),
    ]
    assert solve(pods(ask(), 1), [], nodes).seats == {"o": ("p-00",)}


def test_namespaces_keep_selectors_apart() -> None:
    term = Peers(labels.HOSTNAME, X, frozenset({"elsewhere"}))
    assert len(solve(pods(ask(anti_affinity=(term,)), 3), [WIDE]).claims) == 1


@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), False),
        (HostPort(80, ip="10.0.0.1"), HostPort(80), True),
    ],
)
def test_ports(left: HostPort, right: HostPort, apart: bool) -> None:
    both = [
        WaitingPod("a", ask(host_ports=frozenset({left}))),
        WaitingPod("b", ask("y", host_ports=frozenset({right}))),
    ]
    assert len(solve(both, [WIDE]).claims) == 1 + apart
    nodes = [KarpenterNode("n", {}, FREE, residents=(Resident({}, host_ports=frozenset({left})),))]
    assert ("n" in solve(both[1:], [], nodes).seats) == (not apart)


def test_volumes_decide_where() -> None:
    ask_both = ask(volumes=(at(labels.ZONE, "nowhere"), at(labels.ZONE, "b")))
    assert zones(solve(pods(ask_both, 2), [WIDE])) == {"b": 2}


def test_a_claim_in_one_zone_takes_no_pod_of_another() -> None:
    here, there = (ask(selector=at(labels.ZONE, zone)) for zone in ZONES)
    assert zones(solve([*pods(here, 1, "h"), *pods(there, 1, "t")], [WIDE])) == {"a": 1, "b": 1}
