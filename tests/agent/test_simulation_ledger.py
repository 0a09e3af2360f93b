"""The ledger in a simulated fleet: crashes, two agents, silences, the month's turn, against what the cloud charges."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agent.ledger import months_before
from agent.ledger_settings import LedgerSettings
from agent.simulation import Tempo
from fleet.cost.machine_use import NOBODY, UNOBSERVED
from fleet.cost.open_hours import AS_BEFORE, READ_AFTERWARDS
from fleet.cost.records import HOUR_S, LedgerRecord
from providers.ports import CloudDenied, CloudThrottled
from providers.store.sqlite import SqliteLedger
from tests.agent.scenes import A, Scene, files, gpu_job, pool, queue, simple, team

SLOW = Tempo(tick_s=5.0, foresees=False)


@pytest.fixture
def settings(tmp_path: Path) -> LedgerSettings:
    return LedgerSettings(path=tmp_path / "ledger.db")


@contextmanager
def opened(settings: LedgerSettings) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(settings.path, read_only=True)
    yield ledger
    ledger.close()


def records(settings: LedgerSettings) -> list[LedgerRecord]:
    with opened(settings) as ledger:
        return list(ledger.read(0, 1e12))


def usd(found: list[LedgerRecord]) -> float:
    return sum(it.cost_micro_usd for it in found) / 1e6


def charged(scene: Scene, until_s: float) -> float:
    """What the cloud has charged for the time before an instant."""
    entries = scene.sim.cloud.ledger()
    return sum(
        scene.market.cost_usd(it.pool, it.launched_at_s, min(until_s, it.ended_at_s or until_s))
        for it in entries
        if it.launched_at_s < until_s
    )


def whole_hours(scene: Scene, settings: LedgerSettings) -> float:
    """Lets the last hour settle; its end."""
    end_s = (scene.sim.now_s // HOUR_S + 1) * HOUR_S
    scene.sim.advance(end_s + 600 - scene.sim.now_s)
    assert max(it.hour_s for it in records(settings)) == end_s - HOUR_S
    return end_s


def test_the_ledger_says_what_the_cloud_charges_and_who_had_it(settings: LedgerSettings) -> None:
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g"))
    scene.sim.submit(gpu_job("half", gpus=4))
    scene.until_running("half", 900)
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.001)
    by_name = {it.name: it for it in found if it.hour_s == end_s - HOUR_S and it.subject not in NOBODY}
    assert by_name.keys() == {"g", "half"}
    assert {(it.team, it.queue, it.namespace, it.node_pool) for it in by_name.values()} == {("t", "t", "t", "h100")}
    assert by_name["g"].devices == "8 nvidia.com/gpu"
    assert {it.price_source for it in found} != {""}


def test_a_crash_and_an_hour_of_nobody_double_nothing_and_lose_nothing(settings: LedgerSettings) -> None:
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g"))
    for down_s in (20, 2 * HOUR_S, 400):
        scene.sim.advance(1000)
        scene.sim.crash()
        scene.sim.advance(down_s)
        scene.sim.restart()
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.001)
    assert len({it.key for it in found}) == len(found)
    hours = {it.hour_s for it in found}
    assert hours == {min(hours) + n * HOUR_S for n in range(len(hours))}, "also those in which nobody looked"
    held = sum(it.cost_micro_usd for it in found if it.name == "g") / 1e6
    assert held == pytest.approx(usd(found), rel=0.1), "it ran all the while, and nobody else did"


def test_a_machine_that_dies_while_nobody_looks_bills_until_then(settings: LedgerSettings) -> None:
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g", pods=2))
    scene.sim.advance(600)
    scene.sim.crash()
    scene.sim.advance(600)
    scene.sim.cloud.kill(scene.sim.machines()[0].id)
    scene.sim.advance(1200)
    scene.sim.restart()
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.005)
    assert any(it.subject == UNOBSERVED for it in found)


def test_two_agents_over_the_months_turn_write_one_ledger(settings: LedgerSettings) -> None:
    """Two agents share the ledger; the leader is killed now and then; a month ends on the way."""
    fleet = files(pool(zones=[A], capacityTypes=["spot"]), team(), queue())
    scene = Scene(None, ledger=settings, tempo=SLOW, agents=2)
    turn_s = months_before(scene.sim.now_s, -1)
    scene.sim.clock.advance_to(turn_s - 2.5 * HOUR_S)
    scene.sim.push(fleet)
    scene.sim.submit(gpu_job("g"))
    for _ in range(4):
        scene.sim.advance(1800)
        scene.sim.crash()
        scene.sim.advance(1800)
        scene.sim.restart()
    end_s = whole_hours(scene, settings)
    found = records(settings)
    before = [it for it in found if it.hour_s < turn_s]
    assert usd(before) == pytest.approx(charged(scene, turn_s), rel=0.01)
    assert usd(found) - usd(before) == pytest.approx(charged(scene, end_s) - charged(scene, turn_s), rel=0.01)
    assert usd(before) > 0
    assert len({it.key for it in found}) == len(found)


def test_what_is_evicted_has_lost_its_work(settings: LedgerSettings) -> None:
    scene = Scene(simple(limits={"nodes": 1}), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("low"))
    scene.sim.advance(1200)
    scene.runs(gpu_job("urgent", priority="high"))
    whole_hours(scene, settings)
    lost = {it.name: it for it in records(settings) if it.lost_s}
    assert lost.keys() == {"low"}
    assert lost["low"].lost_s == pytest.approx(1200, abs=120)


def test_starts_tell_what_a_gang_has_waited_for(settings: LedgerSettings) -> None:
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.sim.advance(30)
    scene.runs(gpu_job("g"))
    scene.sim.crash()
    scene.sim.advance(20)
    scene.sim.restart()
    end_s = whole_hours(scene, settings)
    with opened(settings) as ledger:
        (it,) = ledger.read_starts(0, end_s)
    assert (it.name, it.namespace, it.queue, it.team, it.again) == ("g", "t", "t", "t", False)
    assert it.submitted_s <= it.reserved_s < it.admitted_s < it.running_s
    assert 30 < it.admitted_s - it.reserved_s < 180, "a machine boots"


def test_a_spot_machine_that_is_taken_back_says_so(settings: LedgerSettings) -> None:
    scene = Scene(files(pool(zones=[A], capacityTypes=["spot"]), team(), queue()), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g"))
    scene.sim.advance(300)
    taken = scene.sim.machines()[0].id
    scene.sim.cloud.interrupt(taken)
    scene.until(lambda: taken not in {it.id for it in scene.sim.machines()}, 600)
    scene.until_running("g", 900)
    scene.sim.advance(15)
    scene.sim.crash()  # what could not be told of afterwards was kept at once
    scene.sim.advance(20)
    scene.sim.restart()
    whole_hours(scene, settings)
    found = records(settings)
    assert {it.ended for it in found if it.machine == taken} == {"Interrupted"}
    assert {it.ended for it in found if it.machine != taken} == {""}
    assert {it.name for it in found if it.lost_s} == {"g"}
    with opened(settings) as ledger:
        assert [it.again for it in ledger.read_starts(0, 1e12)] == [False, True]


def condition(scene: Scene, kind: str = "LedgerFailed") -> dict[str, Any]:
    return next((it for it in scene.sim.sync().get("conditions", ()) if it["type"] == kind), {})


def test_a_ledger_that_cannot_be_written_is_told_of_and_made_up_for(settings: LedgerSettings, tmp_path: Path) -> None:
    place = tmp_path / "volume"
    place.write_text("no folder")
    settings = replace_path(settings, place / "ledger.db")
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g"))
    assert (condition(scene)["status"], condition(scene)["reason"]) == ("True", "NotWritten")
    scene.sim.advance(HOUR_S)
    place.unlink()
    scene.until(lambda: not condition(scene), 120)
    end_s = whole_hours(scene, settings)
    found = [it for it in records(settings) if it.hour_s >= end_s - HOUR_S]
    assert usd(found) == pytest.approx(charged(scene, end_s) - charged(scene, end_s - HOUR_S), rel=0.01)


def test_what_came_and_went_before_the_ledger_was_open_is_in_it(settings: LedgerSettings, tmp_path: Path) -> None:
    place = tmp_path / "volume"
    place.write_text("no folder")
    scene = Scene(simple(), ledger=replace_path(settings, place / "ledger.db"), tempo=SLOW)
    scene.sim.clock.advance_to((scene.sim.now_s // HOUR_S + 1) * HOUR_S)
    scene.runs(gpu_job("g"))
    scene.sim.advance(600)
    (gone,) = scene.sim.machines()
    scene.sim.cloud.kill(gone.id)
    scene.until(lambda: gone.id not in {it.instance_id for it in scene.sim.claims().values()}, 900)
    scene.sim.advance(300)
    place.unlink()
    scene.until(lambda: not condition(scene), 600)
    settings = replace_path(settings, place / "ledger.db")
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.01)
    assert {it.node_pool for it in found if it.machine == gone.id} == {"h100"}, "its claim still told whose it was"


def replace_path(settings: LedgerSettings, path: Path) -> LedgerSettings:
    return settings.model_copy(update={"path": path})


@pytest.mark.parametrize(
    ("at", "months", "begin"),
    [("2026-10-17", 0, "2026-10-01"), ("2026-01-31", 1, "2025-12-01"), ("2026-10-17", 25, "2024-09-01")],
)
def test_months_are_of_the_calendar(at: str, months: int, begin: str) -> None:
    def instant(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    assert months_before(instant(at) + 5000, months) == instant(begin)


# -- budgets ----------------------------------------------------------------------------------------------------------


def test_queues_tell_of_a_budget_at_each_level_once_also_over_a_crash() -> None:
    """A machine for 55 USD an hour: half of the budget is gone after half an hour."""
    budget = {"usdPerMonth": 55.0}
    scene = Scene(files(pool(), team(budget=budget), queue()), tempo=SLOW)
    scene.runs(gpu_job("g"))
    for _ in range(4):
        scene.sim.advance(1200)
        scene.sim.crash()
        scene.sim.advance(20)
        scene.sim.restart()
    told = [it for it in scene.sim.objects("Event") if it["involvedObject"]["kind"] == "Queue"]
    (shown,) = scene.sim.objects("Queue")
    assert {it["involvedObject"].get("uid") for it in told} == {shown["metadata"]["uid"]}, (
        "`kubectl describe` looks by it"
    )
    budgets = [(it["reason"], it["type"], it["count"]) for it in told if it["reason"].startswith("Budget")]
    assert sorted(budgets) == [
        ("BudgetNearlySpent", "Normal", 1),
        ("BudgetNearlySpent", "Warning", 1),
        ("BudgetSpent", "Warning", 1),
    ]


def silent_spot(settings: LedgerSettings, silence_s: float) -> Scene:
    """A spot machine with a gang, and an agent that has been down for so long."""
    scene = Scene(files(pool(zones=[A], capacityTypes=["spot"]), team(), queue()), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g"))
    scene.sim.crash()
    scene.sim.advance(silence_s)
    return scene


def test_a_silence_costs_what_the_spot_price_was_in_each_of_its_hours(settings: LedgerSettings) -> None:
    scene = silent_spot(settings, 9 * HOUR_S)
    scene.sim.restart()
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.001)
    silent = [it for it in found if it.price_source == READ_AFTERWARDS]
    assert len({it.hour_s for it in silent}) >= 9
    assert len({it.usd_h for it in silent}) >= 8, "no hour costs what another did"


def test_spot_prices_that_cannot_be_read_are_waited_for(settings: LedgerSettings) -> None:
    scene = silent_spot(settings, 3 * HOUR_S)
    read = scene.sim.cloud.spot_history
    scene.sim.cloud.spot_history = throttled  # type: ignore[method-assign]
    scene.sim.restart()
    scene.sim.advance(2 * HOUR_S)
    assert records(settings) == [], "no hour is cut before"
    assert "while nobody looked" in condition(scene)["message"]
    scene.sim.cloud.spot_history = read  # type: ignore[method-assign]
    scene.until(lambda: not condition(scene), 300)
    end_s = whole_hours(scene, settings)
    assert usd(records(settings)) == pytest.approx(charged(scene, end_s), rel=0.001)


def test_spot_prices_that_nobody_may_read_are_those_from_before(settings: LedgerSettings) -> None:
    scene = silent_spot(settings, 3 * HOUR_S)
    scene.sim.cloud.spot_history = denied  # type: ignore[method-assign]
    scene.sim.restart()
    whole_hours(scene, settings)
    assert {it.price_source for it in records(settings)} >= {AS_BEFORE}


def throttled(*_asked: object) -> NoReturn:
    raise CloudThrottled("too many calls")


def denied(*_asked: object) -> NoReturn:
    raise CloudDenied("not allowed: ec2:DescribeSpotPriceHistory")
