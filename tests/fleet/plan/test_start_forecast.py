"""When waiting gangs start: forecasts by the plan's own run, their spread, and their correction."""

import random
from dataclasses import replace
from math import log
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import SaveGang
from fleet.explain.gang_facts import StartEstimate
from fleet.plan.forecast_correction import MEDIAN, ForecastCorrection
from fleet.plan.past_arrivals import PastArrivals
from fleet.plan.simulated_run import RunTerms, played
from fleet.plan.start_forecast import LEAST_PART, STEPS_S, StartForecast, StartForecaster
from fleet.replay.run_times import ENDS_KEPT, EndedRun, RunTimeBasis, RunTimes
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from tests.support.fleets import GPU, NOW, FleetBuilder, gang, job_of
from tests.support.world import World


def full(**running: object) -> World:
    """One machine, which somebody runs on, and somebody who waits for it."""
    made = World(FleetBuilder().pool(limits={"nodes": 1}).team(quotas={"h100": {GPU: 8}}).queue().build())
    made.machine("m0")
    made.runs(gang("first", created_s=NOW - 900), ("m0", 1), **running)
    made.waits(gang("second"))
    return made


def forecast_starts(
    fleet: Fleet, snapshot: Snapshot, known: RunTimes, arrivals: PastArrivals | None = None
) -> StartForecast:
    forecaster = StartForecaster(fleet, snapshot, known, arrivals or PastArrivals())
    while forecaster.left:
        forecaster.step()
    return forecaster.forecast


def test_it_starts_when_whoever_is_before_it_has_declared_to_end() -> None:
    world = full(expected_run_s=3500.0)
    found = forecast_starts(world.fleet, world.snapshot(), RunTimes()).estimate("uid-second")
    assert found.p50_s == pytest.approx(NOW + 3000, abs=120)
    assert found.p90_s == pytest.approx(NOW + 3000, abs=120)
    assert found.basis.startswith("9 runs of the plan with declared run times of 1 gang")


def test_learned_run_times_give_a_spread_and_the_time_that_has_passed_counts() -> None:
    known = RunTimes()
    for number in range(40):
        known.learn(EndedRun(gang(f"old-{number}"), 600.0 * (number + 1)))
    world = full()
    found = forecast_starts(world.fleet, world.snapshot(), known).estimate("uid-second")
    assert found.p50_s is not None
    assert found.p90_s is not None
    assert NOW + 3600 < found.p50_s < found.p90_s < NOW + 24_100
    assert "same queue and size" in found.basis


@pytest.mark.parametrize(("run_s", "waiting"), [(300.0, 30), (1200.0, 20), (7200.0, 8)])
def test_short_runs_after_each_other_take_no_longer_because_a_future_is_looked_at_seldom(
    run_s: float, waiting: int
) -> None:
    """What happens within a part of the time since was seen at its end: each run was longer by that."""
    world = full(expected_run_s=900.0 + run_s, pods_ready=True, admitted_at_s=NOW - 900)
    world.waits(gang("second", expected_run_s=run_s, created_s=NOW - 600))
    for number in range(1, waiting):
        world.waits(gang(f"w{number:02}", created_s=NOW - 500 + number, expected_run_s=run_s))
    forecaster = StartForecaster(world.fleet, world.snapshot(), RunTimes(), PastArrivals(), futures=1)
    while forecaster.left:
        forecaster.step()
    last = forecaster.forecast.estimate(f"uid-w{waiting - 1:02}")
    assert last.p50_s == pytest.approx(NOW + waiting * run_s, rel=0, abs=0.01 * waiting * run_s)


def test_nobody_starts_before_they_have_come_because_much_is_looked_at_at_once() -> None:
    """What happens within a part of the time since is seen at its mean: who came after that started before it."""
    world = World(FleetBuilder().pool(replicas=3).team(quotas={"h100": {GPU: 24}}).queue().build())
    for number in range(3):
        world.machine(f"m{number}")
    jobs = [(at_s, job_of(gang(f"came-{number:02}", gpu=1, created_s=at_s)))
            for number in range(20) if (at_s := NOW + 36_000.0 + 37.0 * number**1.5)]  # fmt: skip
    *_, run = played(world.fleet, world.snapshot(), RunTerms(steps_s=STEPS_S, least_part=LEAST_PART, to_come=jobs))
    began_s = {it.action.gang.uid: it.at_s for it in reversed(run.actions)
               if isinstance(it.action, SaveGang) and it.action.gang.state is GangState.ADMITTED}  # fmt: skip
    late_s = {job.ref.name: began_s[job.ref.uid] - at_s for at_s, job in jobs}
    assert late_s == pytest.approx(dict.fromkeys(late_s, 0.0), abs=1e-3)


def test_nobody_knows_where_nothing_tells_and_it_is_said_who_is_in_the_way() -> None:
    world = full()
    found = forecast_starts(world.fleet, world.snapshot(), RunTimes()).estimate("uid-second")
    assert found.p50_s is None
    assert "nothing tells how long ns/first will run" in found.why_unknown


def test_the_same_snapshot_gives_the_same_forecast() -> None:
    world = full(expected_run_s=3500.0)
    first, second = (forecast_starts(world.fleet, world.snapshot(), RunTimes()) for _ in range(2))
    assert first == second


def test_work_that_is_expected_to_come_takes_the_machine_first() -> None:
    """What goes before others has come every hour and run for half of one: it will, while they wait."""
    known, arrivals = RunTimes(), PastArrivals()
    made = FleetBuilder().pool(limits={"nodes": 1}).team(quotas={"h100": {GPU: 8}}).priority("high", 1000)
    world = World(made.queue().build())
    world.machine("m0")
    world.runs(gang("first", created_s=NOW - 900), ("m0", 1), expected_run_s=3500.0)
    world.waits(gang("second"))
    alone = forecast_starts(world.fleet, world.snapshot(), known, arrivals)
    for number in range(48):
        came_s = NOW - 1800 - 3600 * (47 - number)
        ended = EndedRun(gang(f"often-{number}", priority_class="high", created_s=came_s), 1800.0)
        known.learn(ended)
        arrivals.learn(ended)
    found = forecast_starts(world.fleet, world.snapshot(), known, arrivals)
    assert found.estimate("uid-second").p90_s > alone.estimate("uid-second").p90_s + 1500  # type: ignore[operator]
    assert found.estimate("uid-second").basis.endswith("work to come as in the last 47h")
    assert "to come" not in alone.estimate("uid-second").basis


# -- run times --------------------------------------------------------------------------------------------------------


def test_the_closest_kind_of_which_enough_is_known_counts() -> None:
    known = RunTimes()
    for number in range(12):
        known.learn(EndedRun(gang(f"train-{number}"), 100.0))
        known.learn(EndedRun(gang(f"other-{number}", gpu=2), 900.0))
    assert known.spread(gang("train-99")).basis is RunTimeBasis.NAME
    assert known.spread(gang("novel", gpu=2)).basis is RunTimeBasis.SHAPE
    assert known.spread(gang("novel", gpu=4)).basis is RunTimeBasis.QUEUE
    assert known.spread(gang("novel", queue="elsewhere")).basis is RunTimeBasis.ALL


def test_declared_run_times_are_corrected_by_how_far_such_words_were_off() -> None:
    known = RunTimes()
    for number in range(10):
        known.learn(EndedRun(gang(f"g{number}", expected_run_s=100.0), 200.0))
    assert known.spread(gang("g", expected_run_s=1000.0)).at(0.5) == 2000.0


def test_no_run_is_longer_than_it_may_be_and_only_so_many_are_kept() -> None:
    known = RunTimes()
    for number in range(2 * ENDS_KEPT):
        known.learn(EndedRun(gang(f"x{number}"), float(number)))
    spread = known.spread(gang("x", max_run_s=250.0))
    assert len(known.spread(gang("x")).times_s) == ENDS_KEPT
    assert max(spread.times_s) == 250.0


def test_open_runs_count_as_longer_ones_in_kinds_of_which_enough_is_known() -> None:
    known = RunTimes()
    for number in range(20):
        known.learn(EndedRun(gang(f"x{number}"), 60.0 * (number + 1)))
    running = [(gang(f"x{100 + number}"), 3000.0) for number in range(20)]
    found = known.with_open(running, lambda _uid: 0.5).spread(gang("x9"))
    assert found.at(0.4) <= 1200.0 < 3000.0 < found.at(0.6)
    assert known.spread(gang("x9")).at(0.6) <= 1200.0, "what is known is left as it is"
    few = known.with_open([(gang("y1", gpu=2), 3000.0)] * 20, lambda _uid: 0.5)
    assert few.spread(gang("y9", gpu=2)).basis is RunTimeBasis.QUEUE, "none of that shape has ended"


def test_open_runs_make_no_estimate_longer_than_runs_are() -> None:
    """Exponential run times of an hour, twenty at once, for long: of the ends the newest are kept."""
    found, hour_s = [], 3600.0
    for seed in range(30):
        rng, known, runs = random.Random(seed), RunTimes(), list[tuple[float, float]]()
        for number in range(720):
            runs.append((number * hour_s / 20, rng.expovariate(1 / hour_s)))
        now_s = runs[-1][0]
        for came_s, run_s in sorted(runs, key=sum):
            if came_s + run_s < now_s:
                known.learn(EndedRun(gang("x1", created_s=came_s), run_s))
        open_runs = [
            (gang(f"x{n}", created_s=it[0]), now_s - it[0]) for n, it in enumerate(runs) if sum(it) >= now_s > it[0]
        ]
        spread = known.with_open(open_runs, lambda uid: random.Random(uid).random()).spread(gang("x9"))
        found.append(spread.at(0.5))
    assert mean(found) == pytest.approx(hour_s * log(2), rel=0.05)


def test_a_run_that_came_before_ones_that_are_forgotten_is_counted_no_more() -> None:
    known = RunTimes()
    for number in range(ENDS_KEPT + 50):
        known.learn(EndedRun(gang("x1", created_s=100.0 * number), 60.0))
    for came_s, longest_s in ((4_800.0, 60.0), (5_000.0, 90_000.0)):
        found = known.with_open([(gang("x2", created_s=came_s), 90_000.0)], lambda _uid: 0.0)
        assert max(found.spread(gang("x9")).times_s) == longest_s


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=30), st.floats(0, 1e6), st.floats(0, 0.999))
def test_what_is_left_is_never_less_than_nothing(times: list[float], ran_s: float, level: float) -> None:
    known = RunTimes()
    for number, run_s in enumerate(times * 10):
        known.learn(EndedRun(gang(f"x{number}"), run_s))
    assert known.spread(gang("x")).at(level, ran_s) >= ran_s


# -- correction -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_forecasts_that_are_always_off_by_a_factor_come_true_as_often_as_they_should(factor: float) -> None:
    """Waits are spread evenly over a thousand seconds, forecasts say the middle and the end, times a factor."""
    correction, met = ForecastCorrection(), {"p50": 0, "p90": 0}
    for number in range(2000):
        now_s, wait_s = float(number * 10_000), 1000.0 * ((number * 0.6180339887) % 1.0)
        raw = StartEstimate(now_s, now_s + 500 * factor, now_s + 900 * factor, "runs")
        told = correction.told(str(number), "q", raw)
        assert told.p50_s is not None
        assert told.p90_s is not None
        if number >= 1000:
            met["p50"] += now_s + wait_s <= told.p50_s
            met["p90"] += now_s + wait_s <= told.p90_s
        correction.judge({str(number): now_s + wait_s}, frozenset(), now_s + wait_s)
    assert 0.45 <= met["p50"] / 1000 <= 0.55
    assert 0.87 <= met["p90"] / 1000 <= 0.93


def test_a_forecast_that_has_passed_is_judged_before_the_gang_starts_and_only_once() -> None:
    correction = ForecastCorrection()
    correction.told("g", "q", StartEstimate(0.0, 100.0, 200.0, "runs"))
    correction.judge({}, frozenset(), 150.0)
    once = replace(correction.scores["q", MEDIAN])
    assert (once.judged, once.level > MEDIAN) == (1, True)
    correction.judge({}, frozenset(), 160.0)
    assert correction.scores["q", MEDIAN] == once
    correction.judge({}, frozenset({"g"}), 170.0)
    correction.judge({"g": 1000.0}, frozenset(), 1000.0)
    assert correction.scores["q", MEDIAN] == once, "it went away: nothing is learned of it"


def test_what_is_unknown_stays_unknown() -> None:
    raw = StartEstimate(0.0, why_unknown="nobody knows")
    assert ForecastCorrection().told("g", "q", raw) == replace(raw)


def test_estimates_are_made_later_soon_and_sooner_late() -> None:
    """Twenty estimates that were far too early move the next one by most of it, twenty that were too late by little."""
    moved = {}
    for began_s in (1000.0, 10.0):
        correction = ForecastCorrection()
        for number in range(20):
            at_s = number * 10_000.0
            correction.told(str(number), "q", StartEstimate(at_s, at_s + 50.0, at_s + 100.0, "runs"))
            correction.judge({str(number): at_s + began_s}, frozenset(), at_s + began_s)
        told = correction.told("next", "q", StartEstimate(1e6, 1e6 + 50.0, 1e6 + 100.0, "runs"))
        assert told.p90_s is not None
        moved[began_s] = told.p90_s - 1e6
    assert moved[1000.0] > 400.0
    assert 80.0 < moved[10.0] < 100.0
