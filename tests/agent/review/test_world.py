"""What happens without any request is found out once for all of the same world, and not kept for longer."""

from dataclasses import replace

import pytest

from agent.review import world as worlds
from agent.review.world import SAME_WORLD_S, LastPass, RunsWithoutChange
from fleet.plan import Consequences, happens_anyway
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from providers.clock import VirtualClock
from tests.agent.scenes import CATALOG
from tests.support.fleets import NOW, gang

QUIET = Snapshot(now_s=NOW, catalog=CATALOG)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    asked: list[Snapshot] = []

    def counted(fleet: Fleet, snapshot: Snapshot) -> Consequences:
        asked.append(snapshot)
        return happens_anyway(fleet, snapshot)

    monkeypatch.setattr(worlds, "happens_anyway", counted)
    return asked


@pytest.mark.parametrize(
    ("then", "after_s", "again"),
    [
        pytest.param(replace(QUIET, now_s=NOW + 30), 30.0, 1, id="only time has passed"),
        pytest.param(replace(QUIET, now_s=NOW + 30, spent_usd={"t": 4.0}), 30.0, 1, id="money was spent"),
        pytest.param(replace(QUIET, now_s=NOW + SAME_WORLD_S), SAME_WORLD_S, 2, id="too long ago"),
        pytest.param(replace(QUIET, gangs={"g": gang("g")}), 1.0, 2, id="a gang has come"),
    ],
)
def test_it_counts_while_the_world_is_the_same(
    runs: list[Snapshot], then: Snapshot, after_s: float, again: int
) -> None:
    clock, fleet = VirtualClock(NOW), Fleet()
    known = RunsWithoutChange(clock)
    first = known.begin(LastPass(fleet, QUIET))()
    clock.advance(after_s)
    second = known.begin(LastPass(fleet, then))()
    assert len(runs) == again
    assert (second is first, first.snapshot) == (again == 1, QUIET)


def test_another_fleet_in_force_is_another_run(runs: list[Snapshot]) -> None:
    known = RunsWithoutChange(VirtualClock(NOW))
    waits = [known.begin(LastPass(fleet, QUIET)) for fleet in (Fleet(), Fleet())]
    assert waits[0]() is not waits[1]()
    assert len(runs) == 2


def test_what_fails_is_told_to_whoever_waits_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known, place = RunsWithoutChange(VirtualClock(NOW)), LastPass(Fleet(), QUIET)

    def breaks(_fleet: Fleet, _snapshot: Snapshot) -> Consequences:
        raise RuntimeError("no luck")

    with monkeypatch.context() as broken:
        broken.setattr(worlds, "happens_anyway", breaks)
        with pytest.raises(RuntimeError, match="no luck"):
            known.begin(place)()
    assert known.begin(place)().consequences == happens_anyway(place.fleet, QUIET)
