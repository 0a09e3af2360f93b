"""What the guard rails of a running agent let pass: one push at a time, and many small ones within a day."""

import pytest

from agent.simulation import Tempo
from agent.sync import RECONSIDER_MOST_S
from tests.agent.scenes import Doc, Scene, doc, files, gpu_job, pool, queue, team


def fixed(replicas: int, *more: Doc) -> dict[str, str]:
    return files(pool(replicas=replicas), team(quotas={"h100": {"nvidia.com/gpu": 640}}), queue(), *more)


def standing(machines: int, *more: Doc, tempo: Tempo | None = None) -> Scene:
    """A fixed pool that has its machines, bought in steps that the rails let pass."""
    lifted = doc("FleetPolicy", "p", guardRails={"maxUsdPerHourAdded": "Unlimited"})
    scene = Scene(fixed(machines, lifted), tempo=tempo)
    scene.until(lambda: len(scene.sim.machines()) == machines)
    scene.settle(300)
    scene.sim.push(fixed(machines, *more))
    scene.sim.advance(60)
    assert outcome(scene) == "Applied"
    return scene


def outcome(scene: Scene) -> str:
    return str(scene.sim.sync()["history"][0]["outcome"])


def message(scene: Scene) -> str:
    return next(it["message"] for it in scene.sim.sync()["conditions"] if it["type"] == "Ready")


def test_a_slip_of_the_keyboard_buys_nothing() -> None:
    """Sixty machines instead of six, where no rail is written."""
    scene = standing(6)
    scene.sim.push(fixed(60))
    scene.settle(600)
    assert outcome(scene) == "Refused"
    assert len(scene.sim.machines()) == 6
    told = message(scene)
    assert "it adds 54 machines; without guardRails.maxNodesAdded a revision may add 10" in told
    assert "write maxNodesAdded: 54 in an earlier revision" in told
    assert "of the present 330.24 USD/h); if it is meant, write maxUsdPerHourAdded: 2973 in an earlier" in told


def test_nor_does_it_as_the_first_revision_of_all() -> None:
    scene = Scene(fixed(60))
    scene.settle(600, settled=False)
    assert (outcome(scene), scene.sim.machines()) == ("Refused", [])
    assert "write maxNodesAdded: 60 in this revision" in message(scene)


@pytest.mark.parametrize("rails", [{"maxNodesAdded": 60, "maxUsdPerHourAdded": 6000}, {}])
def test_what_is_meant_is_written_a_revision_before(rails: dict[str, int]) -> None:
    """And what is written in the same one lifts nothing."""
    scene = standing(2)
    meant = doc("FleetPolicy", "p", guardRails={"maxNodesAdded": 60, "maxUsdPerHourAdded": 6000})
    if rails:
        scene.sim.push(fixed(2, meant))
        scene.sim.advance(60)
    scene.sim.push(fixed(14, meant))
    scene.settle(600)
    assert len(scene.sim.machines()) == (14 if rails else 2)


# -- within a day -----------------------------------------------------------------------------------------------------

DAY_S = 24 * 3600.0


def test_many_small_pushes_remove_no_more_than_two_may() -> None:
    """Nine of ten machines went in ten seconds by five pushes, none of them beyond 30 %."""
    scene = standing(10)
    for replicas in (8, 6, 4, 2, 1, 3):
        scene.sim.push(fixed(replicas))
        scene.sim.advance(2)
    scene.settle(300)
    assert len(scene.sim.machines()) == 4
    assert outcome(scene) == "Refused"
    told = message(scene)
    assert "with the 4 revisions of the last 24 hours it removes 7 of 10 machines" in told
    assert "guardRails.perDay.maxPercentRemoved allows 60 % (6)" in told
    assert "write perDay: {maxPercentRemoved: 61} in an earlier revision" in told


def test_the_day_goes_on_after_a_restart_and_ends_after_24_hours() -> None:
    scene = standing(10, tempo=Tempo(tick_s=30.0, listing_s=60.0))
    scene.sim.push(fixed(7))
    scene.sim.advance(60)
    assert [it["nodesRemoved"] for it in scene.sim.sync()["lastDay"]] == [0, 3]
    scene.sim.crash()
    scene.sim.restart()
    scene.sim.advance(60)
    assert [it["nodesRemoved"] for it in scene.sim.sync()["lastDay"]] == [0, 3], "what is restored counts once"
    scene.sim.push(fixed(4))
    scene.sim.advance(60)
    scene.sim.push(fixed(3))
    scene.settle(300)
    assert (len(scene.sim.machines()), outcome(scene)) == (4, "Refused")
    scene.settle(DAY_S + RECONSIDER_MOST_S)
    assert (len(scene.sim.machines()), outcome(scene)) == (3, "Applied"), "it is tried again by itself"


def test_what_several_revisions_may_spend_in_a_day() -> None:
    """250 USD/h each, 500 a day, where no rail is written: nine machines of 55.04 USD/h."""
    scene = Scene(fixed(4))
    for replicas in range(5, 11):
        scene.sim.advance(60)
        scene.sim.push(fixed(replicas))
    scene.settle(900)
    assert len(scene.sim.machines()) == 9
    assert "USD/h; without guardRails.perDay.maxUsdPerHourAdded it may be 500.00, twice what one may" in message(scene)


# -- quota under running gangs ----------------------------------------------------------------------------------------


def two_teams(*more: Doc, drop: bool = False, stop: str = "None") -> dict[str, str]:
    quotas = {"h100": {"nvidia.com/gpu": 16}}
    u = () if drop else (team("u", quotas), queue("u", stopPolicy=stop))
    return files(pool(), team("t", quotas), queue("t"), *u, *more)


def condition(scene: Scene, kind: str) -> str:
    return next((it["message"] for it in scene.sim.sync()["conditions"] if it["type"] == kind), "")


def test_a_team_with_running_gangs_goes_in_two_steps() -> None:
    scene = Scene(two_teams())
    scene.runs(gpu_job("a", namespace="u"))
    scene.sim.push(two_teams(drop=True))
    scene.sim.advance(120)
    assert outcome(scene) == "Refused"
    assert "1 running gangs outside any quota: u/a (queue 'u' goes); stop queue u first" in message(scene)
    assert scene.sim.running("a")
    scene.sim.push(two_teams(stop="HoldAndDrain"))
    scene.sim.advance(300)
    assert scene.state("a") == "Pending"
    scene.sim.push(two_teams(drop=True))
    scene.settle(300)
    assert outcome(scene) == "Applied"
    assert condition(scene, "OutsideQuota") == ""


def test_gangs_that_no_quota_counts_stand_in_the_status_of_the_sync() -> None:
    """What is in force begins anew on a cluster that has gangs: nothing could be refused."""
    scene = Scene(two_teams())
    scene.runs(gpu_job("a", namespace="u"))
    scene.sim.crash()
    scene.sim.store.delete(scene.sim.store.resource("FleetSync"), scene.sim.cluster_name)
    scene.sim.commits.pushed.clear()
    scene.sim.push(two_teams(drop=True))
    scene.sim.restart()
    scene.sim.advance(120)
    assert outcome(scene) == "Applied"
    assert scene.sim.running("a")
    told = "1 gang runs outside any quota: u/a (queue 'u' is not declared)"
    assert condition(scene, "OutsideQuota") == told


def test_a_pool_that_wants_it_goes_with_a_word_in_the_commit() -> None:
    guarded = fixed(1, pool("old", deletion="Confirm"))
    scene = Scene(guarded)
    scene.sim.push(fixed(1))
    scene.sim.advance(60)
    assert "it deletes nodepool/old, which want that confirmed" in message(scene)
    scene.sim.push(fixed(1), confirms=frozenset({"nodepool/old"}))
    scene.sim.advance(60)
    assert outcome(scene) == "Applied"
