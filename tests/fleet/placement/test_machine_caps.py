"""What constraints reduce to: caps of a machine, domains that pods keep to, pods that are one; and what does not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fleet.placement.machine_caps import MachineCaps, domains_on, is_in
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import PodConstraints, PodHostPort
from fleet.snapshot.volumes import PersistentVolume, VolumeClaim, Volumes
from model import labels
from tests.fleet.placement.test_constrained import apart, other, pods, spread, together, world, zone_is
from tests.fleet.placement.test_place import rig
from tests.support.fleets import A, B

HOST, ZONE, TYPE = labels.HOSTNAME, labels.ZONE, labels.INSTANCE_TYPE
NOTHING = PodConstraints()


def port(number: int = 80, ip: str = "") -> PodConstraints:
    return PodConstraints(host_ports=(PodHostPort(number, ip=ip),))


def both(*asked: PodConstraints) -> PodConstraints:
    return PodConstraints(
        affinity=tuple(it for each in asked for it in each.affinity),
        anti_affinity=tuple(it for each in asked for it in each.anti_affinity),
        spread=tuple(it for each in asked for it in each.spread),
        host_ports=tuple(it for each in asked for it in each.host_ports),
    )


def caps_of(*sets: PodSet, standing: bool = False) -> MachineCaps:
    return MachineCaps.of(rig(world()).board.neighbours, sets, standing=standing)


def together_on_one(caps: MachineCaps, sets: Sequence[PodSet], counts: Sequence[int]) -> bool:
    """Whether one machine may hold so many of each."""
    used = dict.fromkeys(caps.capacity, 0)
    for each, count in zip(sets, counts, strict=True):
        for name, amount in caps.taken(each).items():
            used[name] += amount * count
    return all(used[name] <= most for name, most in caps.capacity.items())


@pytest.mark.parametrize(
    ("asked", "counts", "may"),
    [
        pytest.param([(NOTHING, "x")], [9], True, id="who asks nothing"),
        pytest.param([(apart(), "x")], [1], True, id="one that keeps apart"),
        pytest.param([(apart(), "x")], [2], False, id="two that keep apart"),
        pytest.param([(apart(), "x"), (NOTHING, "y")], [1, 9], True, id="beside others"),
        pytest.param([(apart(), "x"), (NOTHING, "x")], [1, 1], False, id="nor beside those it means"),
        pytest.param([(apart(), "x"), (NOTHING, "x")], [0, 9], True, id="who are free among themselves"),
        pytest.param([(apart(), "x"), (apart(HOST, "x", "y"), "y")], [1, 1], False, id="whoever asks"),
        pytest.param([(port(), "x")], [2], False, id="a port"),
        pytest.param([(port(80), "x"), (port(81), "y")], [1, 1], True, id="two ports"),
        pytest.param([(port(80, "10.0.0.1"), "x"), (port(), "y")], [1, 1], False, id="every address"),
        pytest.param([(port(80, "10.0.0.1"), "x"), (port(80, "10.0.0.2"), "y")], [1, 1], True, id="two addresses"),
        pytest.param([(spread(HOST, 2), "x")], [2], True, id="as many as the skew"),
        pytest.param([(spread(HOST, 2), "x")], [3], False, id="more than the skew"),
        pytest.param([(spread(HOST, 2), "x"), (NOTHING, "x")], [1, 2], False, id="whoever is counted"),
        pytest.param([(spread(HOST, 2), "y")], [9], True, id="a spread that does not count them"),
        pytest.param([(spread(HOST, hard=False), "x")], [9], True, id="a wish"),
        pytest.param([(spread(ZONE), "x")], [9], True, id="a zone is no machine"),
    ],
)
def test_what_one_machine_may_hold(
    asked: Sequence[tuple[PodConstraints, str]], counts: Sequence[int], may: bool
) -> None:
    sets = [pods(it, name=f"s{n}", label=label) for n, (it, label) in enumerate(asked)]
    assert together_on_one(caps_of(*sets), sets, counts) is may


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        pytest.param([(NOTHING, "x")], [()], id="nobody asks"),
        pytest.param([(apart(), "x"), (port(), "y")], [(), ()], id="machines are no domain"),
        pytest.param([(apart(ZONE), "x"), (NOTHING, "y")], [(ZONE,), ()], id="apart by zone"),
        pytest.param([(apart(ZONE), "x"), (NOTHING, "x")], [(ZONE,), (ZONE,)], id="with whom they keep away"),
        pytest.param([(spread(), "x"), (NOTHING, "x")], [(ZONE,), (ZONE,)], id="with whoever is counted"),
        pytest.param([(together(ZONE, "y"), "x"), (NOTHING, "y")], [(ZONE,), (ZONE,)], id="with whom they follow"),
        pytest.param([(both(spread(), apart(TYPE)), "x")], [(TYPE, ZONE)], id="two labels"),
        pytest.param([(both(together(ZONE), together(TYPE)), "x")], [(TYPE, ZONE)], id="both terms"),
        pytest.param([(spread(hard=False), "x")], [()], id="a wish"),
    ],
)
def test_in_which_domains_pods_stay(
    asked: Sequence[tuple[PodConstraints, str]], kept: Sequence[tuple[str, ...]]
) -> None:
    sets = [pods(it, name=f"s{n}", label=label) for n, (it, label) in enumerate(asked)]
    caps = caps_of(*sets)
    assert [caps.keys(it) for it in sets] == kept


@pytest.mark.parametrize(
    ("asked", "stays", "one"),
    [
        pytest.param([(together(HOST), "x")], [False], [True], id="near its own kind alone"),
        pytest.param([(together(HOST), "x"), (together(HOST), "x")], [False] * 2, [True] * 2, id="two sets as one"),
        pytest.param(
            [(together(HOST, "y"), "x"), (NOTHING, "y")], [True, True], [False] * 2, id="who follows, and whom"
        ),
        pytest.param(
            [(together(HOST), "x"), (NOTHING, "x")], [True, True], [False] * 2, id="company that asks nothing"
        ),
        pytest.param([(apart(HOST, "y"), "x"), (NOTHING, "y")], [True, False], [False] * 2, id="who keeps others away"),
        pytest.param([(apart(HOST, "y"), "x")], [False], [False], id="others who are not there"),
        pytest.param([(together(ZONE), "x")], [False], [False], id="a zone is no machine"),
    ],
)
def test_who_stays_and_who_is_one(
    asked: Sequence[tuple[PodConstraints, str]], stays: Sequence[bool], one: Sequence[bool]
) -> None:
    sets = [
        replace(pods(it, label=label), labels=(("app", label), ("n", str(n)))) for n, (it, label) in enumerate(asked)
    ]
    caps = caps_of(*sets)
    assert [caps.stays(it) for it in sets] == stays
    assert [caps.gathers(it) is not None for it in sets] == one


def test_what_stands_takes_of_its_machine() -> None:
    made = world(("m0", A), ("m1", A), ("m2", A))
    made.stands(other("p0", made.claims["m0"].node, labels=(("app", "x"),), constraints=apart()))
    made.stands(other("p1", made.claims["m1"].node, constraints=port()))
    board = rig(made).board
    moving = [pods(both(apart(), port()), label="x"), pods(NOTHING, label="x", name="others")]
    caps = MachineCaps.of(board.neighbours, moving, standing=True)
    left = {slot.claim: caps.left().get(slot, caps.capacity) for slot in board.slots.values()}

    def may(claim: str, pods: PodSet) -> bool:
        return all(left[claim][name] >= amount for name, amount in caps.taken(pods).items())

    assert [may(claim, moving[0]) for claim in ("m0", "m1", "m2")] == [False, False, True]
    assert [may(claim, moving[1]) for claim in ("m0", "m1", "m2")] == [False, True, True]


def test_who_keeps_away_from_those_that_stand_may_still_share_a_machine() -> None:
    made = world(("m0", A), ("m1", A))
    made.stands(other("p0", made.claims["m0"].node, labels=(("app", "y"),)))
    board = rig(made).board
    keeping = pods(apart(HOST, "y"), label="x")
    caps = MachineCaps.of(board.neighbours, [keeping], standing=True)
    left = {slot.claim: caps.left().get(slot, caps.capacity) for slot in board.slots.values()}
    [(name, amount)] = caps.taken(keeping).items()
    assert left["m0"][name] < amount
    assert left["m1"][name] >= 9 * amount


def test_volumes_keep_pods_where_they_are_bound() -> None:
    made = world(("m0", A))
    made.volumes = Volumes(
        {"ns/data": VolumeClaim("ns", "data", volume="pv", bound=True)},
        {"pv": PersistentVolume("pv", reaches=zone_is(B), claim="ns/data")},
    )
    mounting = pods(PodConstraints(claims=("data",)))
    assert MachineCaps.of(rig(made).board.neighbours, [mounting]).keys(mounting) == (ZONE,)


def test_domains_are_read_by_the_names_of_today() -> None:
    old = "failure-domain.beta.kubernetes.io/zone"
    assert domains_on({ZONE: A}, [old, TYPE]) == ((old, A), (TYPE, None))
    assert is_in({ZONE: A}, frozenset({(old, A), (TYPE, None)}))
    assert not is_in({ZONE: A, TYPE: "p5"}, frozenset({(TYPE, None)}))
