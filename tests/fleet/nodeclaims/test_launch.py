"""The claims of a purchase: one for each machine, in as few launches as there are offerings."""

from collections.abc import Mapping

from fleet.nodeclaims.launch import WrittenClaims, write_claims
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.snapshot import Claim
from tests.support.fleets import NOW, P5, P5S, A, catalog, offering, small_fleet

FLEET = small_fleet(instanceTypes=[P5.name, P5S.name])
LARGE = offering(FLEET, catalog(), "h100", P5.name, A, "on-demand")
SMALL = offering(FLEET, catalog(), "h100", P5S.name, A, "on-demand")


def test_lots_of_one_offering_are_one_launch() -> None:
    """A leader and its workers, bought one after the other, come together or not at all."""
    written = write_claims(
        PlacementPlan(
            purchases=(PlannedNodeClaims(LARGE, 1), PlannedNodeClaims(SMALL, 2), PlannedNodeClaims(LARGE, 3))
        ),
        "uid-g",
        NOW,
    )
    assert [claim.launch.lot for claim in written.claims] == [0, 1, 1, 0, 0, 0]
    assert {claim.launch.size for claim in written.claims} == {6}
    assert len({claim.launch.group for claim in written.claims}) == 1


def test_each_machine_has_a_name_by_the_lot_it_was_planned_in() -> None:
    written = write_claims(
        PlacementPlan(purchases=(PlannedNodeClaims(LARGE, 1), PlannedNodeClaims(LARGE, 2))), "uid-g", NOW
    )
    assert sorted(written.names) == [(0, 0), (1, 0), (1, 1)]
    assert sorted(written.names.values()) == sorted(claim.name for claim in written.claims)
    assert len(set(written.names.values())) == 3


def test_claims_are_written_once_and_not_before_they_are_asked_for() -> None:
    written = write_claims(PlacementPlan(purchases=(PlannedNodeClaims(LARGE, 2),)), "uid-g", NOW)
    asked = list[Mapping[str, str]]()

    def write(purposes: Mapping[str, str]) -> tuple[Claim, ...]:
        asked.append(purposes)
        return written.write(purposes)

    noted = WrittenClaims(written.names, write)
    assert not asked
    assert noted.claims is noted.claims
    assert len(asked) == 1
    assert [claim.name for claim in noted.claims] == [*written.names.values()]


def test_claims_say_what_they_are_for_by_name() -> None:
    plan = PlacementPlan(purchases=(PlannedNodeClaims(LARGE, 2),))
    written = write_claims(plan, "uid-g", NOW, purpose="for somebody")
    assert [claim.purpose for claim in written.claims] == ["for somebody"] * 2
    first, second = written.names.values()
    written.are_for({second: "for uid-g"})
    assert {claim.name: claim.purpose for claim in written.claims} == {first: "for somebody", second: "for uid-g"}


def test_nothing_is_written_where_nothing_is_bought() -> None:
    assert write_claims(PlacementPlan(), "uid-g", NOW).claims == ()
