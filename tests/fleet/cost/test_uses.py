"""Who uses which machine at what price: gangs, ordinary pods by their owner, and what nobody takes, by why."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.catalog import InstanceOffer
from fleet.cost.machine_use import IDLE, NOT_READY, UNCLAIMED, Holding, MachineUse
from fleet.cost.uses import AS_BOUGHT, CostTerms, NegotiatedRate, user_of, uses
from fleet.markets import PriceSource
from fleet.nodeclaims.termination import instance_gone
from fleet.quota.build_tree import borrowing
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Pod, PodSet
from fleet.snapshot.lookups import LISTING_LAG_S
from model import labels
from tests.support.fleets import GPU, NOW, P5, PRICES, A, B, FleetBuilder, catalog, gang, instance_of
from tests.support.world import World

TERMS = CostTerms(payer_of)


def world(quota: int = 99) -> World:
    builder = FleetBuilder().pool()
    for team in ("a", "b"):
        builder.team(team, {"h100": {GPU: quota}}, namespaces=[team]).queue(f"q{team}", team)
    made = World(builder.build())
    made.machine("m0")
    return made


def of(team: str, gpu: int, name: str, **more: Any) -> Any:
    return gang(name, gpu=gpu, queue=f"q{team}", namespace=team, **more)


def only(made: World, terms: CostTerms = TERMS) -> MachineUse:
    (use,) = uses(made.fleet, made.snapshot(), terms).values()
    return use


def test_what_is_told_of_a_gang() -> None:
    made = world()
    pods = PodSet("main", 1, {GPU: 2, "cpu": 1000}, labels=((labels.USER, "ada"),))
    made.runs(gang("g", pods, queue="qa", namespace="a"), ("m0", 1))
    (holding,) = only(made).holdings
    assert holding == Holding(
        "uid-g", "g", "a", "qa", "a", "ada", borrowed=False, share=0.25, devices="2 nvidia.com/gpu", since_s=NOW - 500
    )
    assert only(made, replace(TERMS, user_label="other")).holdings[0].user == ""


def test_the_user_is_that_of_the_pods_or_else_of_the_job() -> None:
    made = world()
    plain, said = PodSet("main", 1, {GPU: 2}), ((labels.USER, "ada"),)
    for name, pods, own, expected in (
        ("job", plain, said, "ada"),
        ("both", replace(plain, labels=((labels.USER, "eve"),)), said, "eve"),
        ("none", plain, (), ""),
    ):
        asked = gang(name, pods, queue="qa", namespace="a")
        assert user_of(replace(asked, labels=own), labels.USER) == expected
    made.runs(gang("g", plain, queue="qa", namespace="a"), ("m0", 1))
    assert only(made).holdings[0].user == ""
    made.gangs["uid-g"] = replace(made.gangs["uid-g"], labels=said)
    assert only(made).holdings[0].user == "ada", "a label that comes later counts from then on"


def stands(made: World, name: str, owner: str, cpu: int, namespace: str = "b") -> None:
    shape = PodSet("it", 1, {"cpu": cpu}, namespace=namespace)
    node = made.claims["m0"].node
    pod = Pod(f"u-{name}", namespace, name, node, "Running", {"cpu": cpu}, shape=shape, owner=owner)
    made.stands(replace(pod, started_at_s=NOW - 100))


def test_ordinary_pods_go_by_their_owner_and_their_namespace_pays() -> None:
    made = world()
    whole = made.claims["m0"].resources["cpu"]
    for n in range(2):
        stands(made, f"web-{n}", "Deployment/web", whole // 4)
    stands(made, "odd", "Deployment/web", whole // 8)  # of another size: another class of the same owner
    stands(made, "bare", "", whole // 8, "nobodys")
    held = {it.subject: (it.name, it.team, round(it.share, 6)) for it in only(made).holdings}
    assert held == {
        "b/Deployment/web": ("Deployment/web", "b", round(0.625 / 8, 6)),
        "nobodys/Pod/bare": ("Pod/bare", "", round(0.125 / 8, 6)),
    }


def test_what_is_admitted_past_the_teams_own_quota_is_borrowed() -> None:
    made = world(quota=4)
    made.machine("m1")
    made.runs(of("a", 8, "over"), ("m0", 1), admitted_at_s=NOW - 10)
    made.runs(of("a", 4, "own"), ("m1", 1), admitted_at_s=NOW - 20)
    made.runs(of("b", 4, "else"), ("m1", 1), admitted_at_s=NOW - 5)
    seen = made.snapshot()
    assert borrowing(made.fleet, seen) == {"uid-over"}
    found = uses(made.fleet, seen, TERMS, frozenset({"uid-over"}))
    assert [(it.subject, it.borrowed) for use in found.values() for it in use.holdings] == [
        ("uid-over", True),
        ("uid-else", False),
        ("uid-own", False),
    ]


@pytest.mark.parametrize(
    ("facts", "rest"),
    [({}, IDLE), ({"ready_at_s": 0.0}, NOT_READY), ({"node_ready": False}, NOT_READY)],
)
def test_why_nobody_takes_the_rest(facts: dict[str, Any], rest: str) -> None:
    made = world()
    made.claims["m0"] = replace(made.claims["m0"], **facts)
    assert only(made).rest == rest


def test_a_machine_that_no_claim_answers_for_bills_as_well() -> None:
    made = world()
    lost = instance_of(made.claims["m0"], id="i-lost", zone=B)
    made.instances["i-lost"] = lost
    use = uses(made.fleet, made.snapshot(), TERMS)["i-lost"]
    assert (use.usd_h, use.rest, use.gpus) == (PRICES[P5.name][0], UNCLAIMED, 8)


@pytest.mark.parametrize(
    ("listed_s", "bills"),
    [
        pytest.param(0, True, id="nothing was listed yet"),
        pytest.param(LISTING_LAG_S, True, id="too young for the listing"),
        pytest.param(LISTING_LAG_S + 1, False, id="the cloud has forgotten it"),
    ],
)
def test_a_machine_that_the_cloud_does_not_list_bills_while_it_is_too_young_for_that(
    listed_s: float, *, bills: bool
) -> None:
    """Books, ledger and the life of a claim go by one rule."""
    made = world()
    del made.instances["i-m0"]
    launched_s = made.claims["m0"].launched_at_s
    seen = replace(made.snapshot(), instances_at_s=0.0)
    assert uses(made.fleet, seen, TERMS).keys() == {"i-m0"}
    later = replace(seen, instances_at_s=launched_s + listed_s if listed_s else 0.0)
    assert bool(uses(made.fleet, later, TERMS)) is bills
    assert instance_gone(later, made.claims["m0"]) is not bills


def test_a_launch_counts_from_when_the_cloud_says() -> None:
    made = world()
    made.instances["i-m0"] = replace(made.instances["i-m0"], launched_at_s=NOW - 7003)
    assert (only(made).launched_s, only(made).known_s) == (NOW - 7003, NOW - 7000)
    del made.instances["i-m0"]
    (use,) = uses(made.fleet, replace(made.snapshot(), instances_at_s=NOW - 6990), TERMS).values()
    assert use.launched_s == use.known_s == NOW - 7000, "until it is listed its claim says"


def rate(**more: Any) -> NegotiatedRate:
    facts: dict[str, Any] = {
        "instance_type": "p5.*",
        "capacity_type": "on-demand",
        "usd_h": None,
        "percent_off": 0.0,
        "source": "savings plan",
    }
    return NegotiatedRate(**facts | more)


@pytest.mark.parametrize(
    ("given", "usd_h", "source"),
    [
        (rate(percent_off=25.0), 73.5, "savings plan"),
        (rate(usd_h=50.0), 50.0, "savings plan"),
        (rate(usd_h=50.0, instance_type="p5en.*"), 98.0, "list"),
        (rate(usd_h=50.0, capacity_type="spot"), 98.0, "list"),
    ],
)
def test_rates_of_ones_own(given: NegotiatedRate, usd_h: float, source: str) -> None:
    made = world()
    priced = PriceSource("list", "us-east-1", NOW)
    made.catalog = catalog([InstanceOffer(P5, A, "on-demand", 98.0, priced=priced)])
    found = only(made, replace(TERMS, rates=(given, rate(usd_h=1.0, instance_type="never"))))
    assert (found.usd_h, found.priced) == (usd_h, PriceSource(source, "us-east-1", NOW))


def test_what_is_sold_no_more_costs_what_it_cost() -> None:
    made = world()
    made.catalog = replace(made.catalog, offers=())
    assert only(made).usd_h == 98.0
    assert only(made).priced.source == AS_BOUGHT


def test_only_machines_that_changed_are_worked_out_anew() -> None:
    made = world()
    made.machine("m1")
    first = made.snapshot()
    before = uses(made.fleet, first, TERMS)
    assert uses(made.fleet, first, TERMS) is before
    made.runs(of("a", 8, "g"), ("m0", 1))
    made.runs(of("a", 8, "h"), ("m1", 1))
    seen = made.snapshot()
    both = replace(seen, index=first.index)
    before = uses(made.fleet, both, TERMS)
    after = uses(made.fleet, both, TERMS, frozenset({"uid-g"}))
    assert after["i-m0"].holdings[0].borrowed
    assert after["i-m1"] is before["i-m1"]
    changed = {**both.claims, "m1": replace(both.claims["m1"], node_ready=False)}
    later = uses(made.fleet, replace(both, claims=changed), TERMS, frozenset({"uid-g"}))
    assert later["i-m0"] is after["i-m0"]
    assert later["i-m1"] is not after["i-m1"]
