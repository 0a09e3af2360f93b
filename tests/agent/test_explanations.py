"""The keeper of explanations: what it finds in idle time, what that may cost, and where the same value is shown."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from agent import explanations
from agent.cli.explain import short_lines
from agent.explanation import cost_words, explanation_lines
from agent.explanations import SHARE, ExplanationKeeper
from agent.gang_answer import GangAnswer
from agent.inbox import Done
from agent.metrics import Metrics
from agent.web.access import KubeGate
from agent.web.seen import explained_at_once
from fleet.actions import SaveGang
from fleet.cost.uses import CostTerms
from fleet.explain.gang import CheckStep, GangExplanation
from fleet.explain.gang_facts import GangCost
from fleet.explain.quota_holders import QuotaHolder
from fleet.quota.queue_binding import payer_of
from fleet.reasons import Reason
from fleet.replay.run_times import EndedRun
from fleet.snapshot import Gang, GangState
from providers.kube.errors import Forbidden, KubeError, NotFound
from providers.kube.objects import workload_object, workload_status
from providers.kube.objects.explanations import explanation_status
from providers.kube.objects.instants import whole_instant
from tests.agent.web import stage
from tests.agent.web.stage import HandClock
from tests.agent.web.test_access import api
from tests.agent.web.test_server import PageSite
from tests.support.fleets import NOW, gang, job_of
from tests.support.world import World


class KeptWorld:
    """A keeper on the stage's world, with time of its own."""

    def __init__(self, **options: Any) -> None:
        self.clock = HandClock()
        self.world: World = stage.world()
        self.keeper = ExplanationKeeper(self.clock, CostTerms(payer_of), **options)
        self.turn()

    def turn(self) -> None:
        self.keeper.turned(self.world.fleet, self.world.snapshot())

    def rest(self, units: int = 400) -> None:
        """Lets it work until there is nothing more to do, however long that takes."""
        for _ in range(units):
            self.clock.now_s += 60.0
            if not self.keeper.work():
                return

    def told(self, name: str) -> GangExplanation:
        return self.keeper.explain(self.world.fleet, self.world.snapshot(), self.world.gang(name))


def ended(count: int, queue: str, run_s: float) -> Iterator[EndedRun]:
    for number in range(count):
        yield EndedRun(gang(f"old-{number}", queue=queue, namespace=queue.removeprefix("q-")), run_s + number)


def test_what_is_not_found_yet_is_said_to_be_so_and_found_next() -> None:
    kept = KeptWorld(known=ended(20, "q-red", 7200.0))
    before = kept.told("blue-1")
    assert before.advice is None
    assert before.start is not None
    assert (before.start.p50_s, before.start.why_unknown) == (None, "nothing has been forecast since it came")
    kept.rest()
    after = kept.told("blue-1")
    assert after.start is not None
    assert after.start.p50_s is not None
    assert after.start.p50_s > NOW
    assert "run times learned" in after.start.basis
    assert after.advice is not None
    assert kept.keeper.trouble == ""


def test_a_forecast_that_fails_is_told_and_keeps_nothing_else_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise ValueError("no such gang")

    monkeypatch.setattr(explanations, "StartForecaster", fails)
    kept = KeptWorld()
    for _ in range(40):
        kept.clock.now_s += 30.0  # less than what has failed rests
        kept.keeper.work()
    told = kept.told("blue-1")
    assert told.advice is not None
    assert told.start is not None
    assert told.start.why_unknown == "the last forecast failed: ValueError: no such gang"


def test_without_any_run_time_the_start_is_unknown_because_of_whom() -> None:
    kept = KeptWorld()
    kept.rest()
    start = kept.told("blue-1").start
    assert start is not None
    assert start.p50_s is None
    assert "nothing tells how long" in start.why_unknown
    assert "red/red-0" in start.why_unknown


def test_the_checks_come_in_their_order_and_holders_are_named() -> None:
    kept = KeptWorld(known=ended(20, "q-red", 7200.0))
    kept.world.gangs["uid-red-1"] = replace(kept.world.gang("red-1"), expected_run_s=3600.0)
    kept.turn()
    kept.rest()
    told = kept.told("blue-1")
    assert [check.step for check in told.checks] == list(CheckStep)
    assert told.waits_for is not None
    lines = list(explanation_lines(told))
    assert any(line.startswith("  starts:   about ") for line in lines)
    assert any("  position: " in line for line in lines)


def test_it_never_takes_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit of work costs a second here: a hundred seconds allow the one that is saved, and five more or so."""
    taken = [0.0]

    def thread_time() -> float:
        taken[0] += 0.5
        return taken[0]

    monkeypatch.setattr("agent.explanations.thread_time", thread_time)
    kept = KeptWorld(known=ended(20, "q-red", 7200.0))
    units = 0
    for _ in range(1000):
        kept.clock.now_s += 0.1
        units += kept.keeper.work()
    assert units * 0.5 <= 100 * SHARE + 2.0


def test_a_unit_of_work_that_fails_is_told_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    kept = KeptWorld(failed=metrics.not_explained)

    def broken(*_: Any) -> None:
        raise ValueError("a gang that cannot be explained")

    monkeypatch.setattr("agent.explanations.StartForecaster", broken)
    kept.rest(8)
    assert (metrics.registry.get_sample_value("muster_explanation_failures_total", {"step": "look_ahead"}) or 0) >= 1
    start = kept.told("blue-1").start
    assert start is not None
    assert "a gang that cannot be explained" in start.why_unknown
    monkeypatch.undo()
    kept.rest()
    assert kept.told("blue-1").advice is not None


def test_run_times_are_learned_of_what_ends() -> None:
    kept = KeptWorld()
    done = replace(kept.world.gang("red-0"), state=GangState.FINISHED, ran_before_s=500.0)
    kept.keeper.ended(Done(SaveGang(done)), NOW + 10)
    kept.rest()
    assert kept.keeper.times.ends == 1


def test_the_short_form_goes_into_the_status_and_says_the_same() -> None:
    written: list[tuple[Gang, dict[str, Any]]] = []
    kept = KeptWorld(
        known=ended(20, "q-red", 7200.0), write=lambda it, told: written.append((it, explanation_status(it, told)))
    )
    kept.world.gangs = {uid: replace(it, workload_uid="w") for uid, it in kept.world.gangs.items()}
    kept.turn()
    kept.rest()
    last = next(body for it, body in reversed(written) if it.job.name == "blue-1")
    short = json.loads(json.dumps(last))["status"]["explanation"]
    told = kept.told("blue-1")
    assert told.position is not None
    assert short["position"] == {"place": told.position.place, "of": told.position.of}
    assert told.waits_for is not None
    assert short["waitsFor"] == told.waits_for.step
    assert [it.split(",")[0] for it in short["heldBy"]] == [f"red/red-{n}: 8 nvidia.com/gpu of h100" for n in range(3)]
    lines = list(short_lines(shown(kept.world.gang("blue-1"), short), NOW + 30))
    assert "  position: 1 of 1 in queue q-blue" in lines
    assert any(line.startswith("  starts:   about ") for line in lines)
    assert not any("told:" in line for line in lines)
    assert list(short_lines(shown(kept.world.gang("blue-1"), short), NOW + 120))[-1].startswith("  told:     2m ago")
    scrawled = shown(kept.world.gang("blue-1"), {**short, "at": "yesterday"})
    assert list(short_lines(scrawled, NOW + 30)) == lines, "whoever may write a status may write anything"
    count = len(written)
    kept.rest()
    assert len(written) <= count + 10, "what says the same is written again only when it is old"


@pytest.mark.parametrize(
    ("error", "fails"), [(NotFound("gone"), False), (Forbidden("no"), True)], ids=["gone", "refused"]
)
def test_a_workload_that_has_gone_meanwhile_is_no_failure(error: KubeError, *, fails: bool) -> None:
    failed: list[str] = []

    def write(*_: object) -> None:
        raise error

    kept = KeptWorld(write=write, failed=failed.append)
    kept.world.gangs = {"uid-blue-1": replace(kept.world.gang("blue-1"), workload_uid="w")}
    kept.turn()
    with capture_logs() as lines:
        kept.rest()
    assert bool(failed) == fails
    assert any(it["event"] == "explanation_not_written" for it in lines) == fails


def shown(it: Gang, short: Mapping[str, Any]) -> dict[str, Any]:
    """A Workload as the cluster has it, with what the keeper has written."""
    status = {**workload_status(it, NOW)["status"], "explanation": short}
    return {**workload_object(it), "status": status}


def test_amounts_and_money_of_the_short_form_have_units_and_types() -> None:
    it = gang("g")
    told = explained_at_once(stage.world().fleet, stage.world().snapshot(), it)
    holder = QuotaHolder("ns/h", "t", "q", "f", "cpu", 16_000, NOW + 60, "declared")
    cost = GangCost(110.0849, None, 0.0, 2.5, 0.001, 0.0)
    short = explanation_status(it, replace(told, holders=(holder,), cost=cost))["status"]["explanation"]
    assert short["heldBy"] == [f"ns/h: 16 cpu of f, until {whole_instant(NOW + 60)} (declared)"]
    assert short["cost"] == {"usdPerHour": 110.08, "atRunTime": 2.5}
    unknown = explanation_status(it, replace(told, holders=(replace(holder, ends_s=None),)))["status"]["explanation"]
    assert unknown["heldBy"] == ["ns/h: 16 cpu of f, nobody knows until when"]


@pytest.mark.parametrize(
    ("usd_h", "since_s", "until_s", "words"),
    [
        (55.0, NOW - 600, NOW - 40, "55.00 USD/h now; 0.11 USD so far (the ledger is of 40s ago)"),
        (0.0, NOW - 9, NOW - 40, "nothing now; 0.11 USD so far (the ledger is of 40s ago)"),  # it has just ended
        (0.0, NOW - 600, NOW - 40, "nothing now; 0.11 USD so far"),
        (55.0, NOW - 600, 0.0, "55.00 USD/h now; 0.11 USD so far"),
    ],
)
def test_what_was_spent_says_how_old_it_is(usd_h: float, since_s: float, until_s: float, words: str) -> None:
    """A gang that ran for a minute and ended was told to have cost 0.00 USD."""
    told = explained_at_once(stage.world().fleet, stage.world().snapshot(), stage.world().gang("red-0"))
    cost = GangCost(usd_h, None, 0.11, None, 0.0, 0.0, until_s)
    assert cost_words(replace(told, at_s=NOW, since_s=since_s, cost=cost)) == words


def test_what_is_for_others_to_do_is_said_where_nothing_can_be_tried() -> None:
    world = stage.world()
    it = replace(world.gang("blue-1"), reason=str(Reason.BUDGET_EXHAUSTED))
    told = explained_at_once(world.fleet, world.snapshot(), it)
    short = explanation_status(it, told)["status"]["explanation"]
    assert short["wouldHelp"] == ["raise the team's budget in git, or wait for the next month"]


def written_again(change: Callable[[KeptWorld], None], after_s: float, known: Iterable[EndedRun] = ()) -> bool:
    """Whether the status of a gang that is written already is written again after a change, so many seconds later."""
    written: list[str] = []
    kept = KeptWorld(known=known, write=lambda it, told: written.append(it.job.name))
    kept.world.gangs = {uid: replace(it, workload_uid="w") for uid, it in kept.world.gangs.items()}
    kept.turn()
    kept.rest()
    written.clear()
    change(kept)
    kept.world.now_s += after_s
    kept.turn()
    kept.rest()
    return "red-0" in written


def finishes(kept: KeptWorld) -> None:
    it = kept.world.gang("red-0")
    kept.world.gangs[it.uid] = replace(it, state=GangState.FINISHED, pins=())


def forgets_a_label(kept: KeptWorld) -> None:
    it = kept.world.gang("red-0")
    kept.world.jobs[it.uid] = replace(job_of(it), queue="another")


@pytest.mark.parametrize(
    ("change", "after_s", "expected"),
    [
        pytest.param(lambda _kept: None, 1.0, False, id="nothing has changed"),
        pytest.param(lambda _kept: None, 1_000.0, True, id="its numbers are old"),
        pytest.param(forgets_a_label, 1.0, True, id="its job was relabelled"),
        pytest.param(finishes, 1.0, True, id="it has ended: what it cost in all"),
    ],
)
def test_what_has_the_short_form_written_again(
    change: Callable[[KeptWorld], None], after_s: float, expected: bool
) -> None:
    assert written_again(change, after_s) is expected


def test_that_a_start_is_unknown_gets_into_a_status_that_stands() -> None:
    """It was taken for the same as not looked at yet, and came with the next rewriting ten minutes later."""
    written: list[dict[str, Any]] = []
    kept = KeptWorld(write=lambda it, told: written.append(explanation_status(it, told)))
    kept.world.gangs = {uid: replace(it, workload_uid="w") for uid, it in kept.world.gangs.items()}
    kept.turn()
    kept.rest()
    said = [it["status"]["explanation"].get("start", {}).get("unknownBecause", "") for it in written]
    assert any("nothing tells how long" in words for words in said)


# -- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
def site() -> Iterator[PageSite]:
    made = PageSite()
    yield made
    made.listener.stop()


def test_the_api_gives_typed_values_and_the_command_line_prints_them(site: PageSite) -> None:
    status, headers, body = site.ask("/api/gangs/blue/blue-1")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    answer = msgspec.json.decode(body, type=GangAnswer)
    assert answer.gang is not None
    assert answer.gang.name == "blue/blue-1"
    assert isinstance(json.loads(body)["gang"]["position"]["place"], int)
    _, headers, text = site.ask("/api/gangs/blue/blue-1", Accept="text/plain")
    assert headers["Content-Type"] == "text/plain"
    lines = text.decode().splitlines()
    page = site.ask("/gangs/blue/blue-1")[2].decode()
    assert lines == list(explanation_lines(answer.gang))
    assert lines[0].startswith("blue/blue-1  (Job, queue q-blue")
    assert lines[0].split("  (")[0] in page


def test_a_what_if_is_asked_of_the_agent(site: PageSite) -> None:
    _, _, body = site.ask("/api/gangs/blue/blue-1?priority=high&gpus=2")
    answer = msgspec.json.decode(body, type=GangAnswer)
    assert answer.otherwise is not None
    lines = site.ask("/api/gangs/blue/blue-1?priority=high&gpus=2", Accept="text/plain")[2].decode().splitlines()
    assert any(line.startswith("  with priority class high, 2 GPUs a pod: ") for line in lines)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/gangs/blue/nobody", 404),
        ("/api/gangs/-/nobody", 404),
        ("/api/gangs/-/blue-1", 200),
        ("/api/gangs/blue", 404),
        ("/api/gangs/blue/blue-1?gpus=-1", 400),
        ("/api/gangs/blue/blue-1?gpus=99999999999999", 400),
    ],
)
def test_what_there_is_not_is_an_error_in_json(site: PageSite, path: str, status: int) -> None:
    found, _, _ = site.ask(path)
    assert found == status


def test_whichever_namespace_has_it_is_one_that_whoever_asks_may_see() -> None:
    made = PageSite(KubeGate(api(ann=["red"]), lambda: 0.0))
    made.world.waits(replace(gang("blue-0", queue="q-red", namespace="red"), uid="uid-other"))
    made.turn()
    try:
        found = {
            name: made.ask(f"/api/gangs/-/{name}", Authorization="Bearer token-of-ann", Accept="text/plain")
            for name in ("red-0", "blue-1", "blue-0")
        }
    finally:
        made.listener.stop()
    assert [found[name][0] for name in found] == [200, 404, 200]
    assert found["blue-0"][2].startswith(b"red/blue-0  ("), "blue's own of that name is not hers to see"


def test_of_several_of_one_name_the_namespace_has_to_be_said(site: PageSite) -> None:
    site.world.waits(replace(gang("blue-0", queue="q-red", namespace="red"), uid="uid-other"))
    site.turn()
    status, _, body = site.ask("/api/gangs/-/blue-0")
    assert (status, json.loads(body)) == (400, {"error": "there are several of this name: blue/blue-0, red/blue-0"})


def test_somebody_of_one_team_reads_no_names_of_others() -> None:
    made = stage.world()
    told = KeptWorld(known=ended(20, "q-red", 7200.0))
    told.rest()
    seen = told.told("blue-1").without_names(frozenset({"blue"}))
    assert "red/" not in json.dumps([msgspec.to_builtins(it) for it in (seen.holders, seen.advice)])
    assert made.gang("blue-1").namespace == "blue"
