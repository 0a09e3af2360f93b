"""What else a purchase must heed: limits, flexibility, reservations, daemons; and what is said of those left over."""

from typing import Any

import pytest

from bench.reference.karpenter.buy import (
    Daemon,
    MachineType,
    PlannedClaim,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    SchedulingResults,
    Why,
    solve,
)
from bench.reference.karpenter.buy.reservations import OverReserved, ReservationManager
from bench.reference.karpenter.buy.values import RESERVED
from model import labels
from model.kinds import Toleration
from model.requirements import Requirement, Requirements
from tests.bench.reference.karpenter.buy.worlds import SPECIAL, TWO_TYPES, at, machine, of, pods

SMALL, LARGE = machine("small", 2), machine("large", 8)
BOTH = (SMALL, LARGE)
ONE_CPU = PodSpecification({"cpu": 1000})


def bought(outcome: SchedulingResults) -> list[tuple[list[str], int]]:
    return [([option.machine for option in claim.options], len(claim.pods)) for claim in outcome.claims]


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({"cpu": 7000}, [(["small"], 2)] * 3, id="types beyond the limit are out"),
        pytest.param({"cpu": 16000}, [(["large"], 8)], id="enough for all"),
        pytest.param({"cpu": 9000}, [(["large"], 8)], id="a claim is charged its largest type"),
        pytest.param({"nodes": 1}, [(["large"], 8)], id="machines"),
        pytest.param({"nodes": 0}, [], id="none left"),
        pytest.param({"cpu": -1}, [], id="overspent"),
        pytest.param({"example.com/chip": 0}, [(["large"], 8)], id="what no machine has binds nobody"),
    ],
)
def test_limits(limits: dict[str, int], expected: list[tuple[list[str], int]]) -> None:
    assert bought(solve(pods(ONE_CPU, 8), [PoolTemplate("pool", BOTH, remaining=limits)])) == expected


def test_the_next_pool_takes_what_a_limit_refuses() -> None:
    pools = [PoolTemplate("first", BOTH, weight=9, remaining={"nodes": 1}), PoolTemplate("second", BOTH)]
    outcome = solve(pods(ONE_CPU, 10), pools)
    assert [claim.template for claim in outcome.claims] == ["first", "second"]


# -- flexibility ------------------------------------------------------------------------------------------------------


def test_a_claim_stops_growing_before_it_is_too_little_flexible() -> None:
    outcome = solve(pods(ONE_CPU, 5), [PoolTemplate("pool", BOTH, TWO_TYPES)])
    assert bought(outcome) == [(["small", "large"], 2), (["small", "large"], 2), (["small", "large"], 1)]


# -- reservations -----------------------------------------------------------------------------------------------------


def reserved(name: str, cpu: int, left: int, which: str = "r") -> MachineType:
    amounts = {"cpu": 1000 * cpu, "pods": 10}
    offers = (
        ReferenceOffering(RESERVED, "a", 0.0, reservation_id=which, reserved_left=left),
        ReferenceOffering("on-demand", "a", float(cpu)),
    )
    return MachineType(name, at(labels.INSTANCE_TYPE, name), amounts, amounts, offers)


def held(claims: tuple[PlannedClaim, ...]) -> list[tuple[str, ...]]:
    return [claim.reservations for claim in claims]


def test_what_is_reserved_is_taken_first_and_pinned() -> None:
    (claim,) = solve(pods(PodSpecification({"cpu": 2000}), 1), [PoolTemplate("pool", (reserved("m", 2, 1),))]).claims
    assert (claim.reservations, claim.price_usd_h, claim.options[0].capacity_type) == (("r",), 0.0, RESERVED)
    assert claim.requirements.of(labels.CAPACITY_TYPE).only == RESERVED
    assert claim.requirements.of(labels.CAPACITY_RESERVATION_ID).only == "r"


def test_when_it_is_gone() -> None:
    """A pass waits for what others of it may not need after all."""
    outcome = solve(pods(PodSpecification({"cpu": 2000}), 3), [PoolTemplate("pool", (reserved("m", 2, 1),))])
    assert (held(outcome.claims), [each.why for each in outcome.unplaced]) == ([("r",)], [Why.RESERVATIONS])


def test_a_claim_gives_back_what_it_has_outgrown() -> None:
    """The first claim could have used either reservation until its second pod left only the larger machine."""
    types = (reserved("small", 2, 1, "s"), reserved("large", 4, 1, "l"))
    outcome = solve(pods(PodSpecification({"cpu": 2000}), 2), [PoolTemplate("pool", types)])
    assert held(outcome.claims) == [("l",)]


def test_no_place_is_given_twice() -> None:
    books = ReservationManager({"r": 1})
    books.reserve("h1", ["r"])
    books.reserve("h1", ["r"])
    assert (books.remaining("r"), books.can_reserve("h1", "r"), books.can_reserve("h2", "r")) == (0, True, False)
    with pytest.raises(OverReserved):
        books.reserve("h2", ["r"])
    books.release("h1", ["r", "unknown"])
    assert books.can_reserve("h2", "r")


# -- daemons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("daemon", "room"),
    [
        pytest.param(Daemon("d", {"cpu": 1000}), 1, id="everywhere"),
        pytest.param(Daemon("d", {"cpu": 1000}, (at(labels.INSTANCE_TYPE, "large"),)), 2, id="on other types"),
        pytest.param(Daemon("d", {"cpu": 1000}, (of(team="x"),)), 2, id="on other nodes"),
    ],
)
def test_daemons_take_their_part_of_the_types_they_run_on(daemon: Daemon, room: int) -> None:
    outcome = solve(pods(ONE_CPU, 2), [PoolTemplate("pool", (SMALL,), daemons=(daemon,))])
    assert [count for _, count in bought(outcome)] == [room] * (2 // room)


def test_daemons_that_do_not_tolerate_a_pool_take_nothing() -> None:
    tolerant = PodSpecification({"cpu": 1000}, tolerations=(Toleration(operator="Exists"),))
    pool = PoolTemplate("pool", (SMALL,), taints=(SPECIAL,), daemons=(Daemon("d", {"cpu": 1000}),))
    assert [count for _, count in bought(solve(pods(tolerant, 2), [pool]))] == [2]


def test_a_claim_requests_what_daemons_take_of_every_option() -> None:
    daemons = (Daemon("d", {"cpu": 100}), Daemon("l", {"cpu": 100}, (at(labels.INSTANCE_TYPE, "large"),)))
    (claim,) = solve(pods(PodSpecification({"cpu": 500}), 1), [PoolTemplate("pool", BOTH, daemons=daemons)]).claims
    assert claim.requests == {"cpu": 600}


# -- why not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "pool", "why", "words"),
    [
        ({"cpu": 99_000}, {}, Why.NO_MACHINE, "no machine type"),
        ({"gpu": 1}, {}, Why.NO_MACHINE, "no machine type"),
        ({"cpu": 5000}, {"remaining": {"cpu": 4000}}, Why.LIMITS, "limits"),
        ({"cpu": 1}, {"remaining": {"nodes": 0}}, Why.LIMITS, "limits"),
        ({"cpu": 99_000}, {"remaining": {"cpu": 4000}}, Why.NO_MACHINE, "no machine type"),
        ({"cpu": 1}, {"taints": (SPECIAL,)}, Why.TAINTS, "taints"),
        ({"cpu": 1}, {"requirements": at(labels.ZONE, "nowhere")}, Why.NO_MACHINE, "no machine type"),
        ({"cpu": 5000}, {"requirements": TWO_TYPES}, Why.MIN_VALUES, f"(label(s)=[{labels.INSTANCE_TYPE}])"),
    ],
)
def test_reasons(ask: dict[str, int], pool: dict[str, Any], why: Why, words: str) -> None:
    (unplaced,) = solve(pods(PodSpecification(ask), 2), [PoolTemplate("pool", BOTH, **pool)]).unplaced
    assert (unplaced.pods, unplaced.why) == (("p-00", "p-01"), why)
    assert "'pool'" in unplaced.message
    assert words in unplaced.message


def test_a_label_nobody_has_is_named() -> None:
    ask = PodSpecification(selector=of(team="x"))
    (unplaced,) = solve(pods(ask, 1), [PoolTemplate("pool", BOTH)]).unplaced
    assert unplaced.why is Why.REQUIREMENTS
    assert "'team'" in unplaced.message


def test_without_pools() -> None:
    (unplaced,) = solve(pods(ONE_CPU, 1), []).unplaced
    assert unplaced.why is Why.NO_POOL


def test_types_that_lack_a_label_are_not_refused_for_it() -> None:
    wanted = Requirements({labels.ARCH: Requirement.one_of("arm64")})
    (claim,) = solve(pods(PodSpecification(selector=wanted), 1), [PoolTemplate("pool", BOTH)]).claims
    assert claim.requirements.of(labels.ARCH).only == "arm64"


def test_an_offer_may_hold_more_than_its_type() -> None:
    """Capacity that comes with one way of buying only."""
    offers = (
        ReferenceOffering("on-demand", "a", 1.0),
        ReferenceOffering("on-demand", "b", 3.0, allocatable={"example.com/chip": 4}),
    )
    odd = MachineType("odd", at(labels.INSTANCE_TYPE, "odd"), {"cpu": 4000}, {"cpu": 4000, "pods": 9}, offers)
    cheap, dear = (
        solve(pods(PodSpecification({"cpu": 1, **more}), 1), [PoolTemplate("pool", (odd,))]).claims[0].options[0]
        for more in ({}, {"example.com/chip": 1})
    )
    assert [(each.price_usd_h, each.zone) for each in (cheap, dear)] == [(1.0, "a"), (3.0, "b")]
