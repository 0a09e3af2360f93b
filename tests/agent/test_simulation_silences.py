"""Hours without an agent: what books, ledger and report say afterwards, against what the cloud charges."""

import io
import json
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from agent.cli.cost import CostRequest
from agent.cli.report import show_report
from agent.demo.jobs import Manifest
from agent.ledger_settings import LedgerSettings
from agent.simulation import Tempo
from fleet.cost.machine_use import UNOBSERVED
from fleet.cost.records import HOUR_S
from providers.kube.objects.paths import CONFIG_MAPS
from providers.store.sqlite import SqliteLedger
from tests.agent.scenes import Scene, files, gpu_job, pool, queue, simple, team

SLOW = Tempo(tick_s=5.0, slowest_tick_s=0.0, foresees=False)
"""Books are compared as saved last: at rest the agent would look, and save, up to a quarter of a minute later."""


@pytest.fixture
def settings(tmp_path: Path) -> LedgerSettings:
    return LedgerSettings(path=tmp_path / "ledger.db")


def charged(scene: Scene, until_s: float) -> float:
    """What the cloud has charged for the time before an instant."""
    return sum(
        scene.market.cost_usd(it.pool, it.launched_at_s, min(until_s, it.ended_at_s or until_s))
        for it in scene.sim.cloud.ledger()
        if it.launched_at_s < until_s
    )


def books(scene: Scene) -> dict[str, float]:
    """USD by team, as saved last."""
    kept = scene.sim.object("ConfigMap", "muster-books", "muster-system")
    assert kept is not None
    return {team: micro / 1e6 for team, micro in json.loads(kept["data"]["books.json"])["by_team"].items()}


def ledger_usd(scene: Scene, settings: LedgerSettings) -> tuple[dict[str, float], float]:
    """USD by name of all hours up to one that is over, and what the cloud has charged until then."""
    end_s = (scene.sim.now_s // HOUR_S + 1) * HOUR_S
    scene.sim.advance(end_s + 600 - scene.sim.now_s)
    ledger = SqliteLedger(settings.path, read_only=True)
    found: Counter[str] = Counter()
    for it in ledger.read(0, 1e12):
        found[it.name] += it.cost_micro_usd
    ledger.close()
    return {name: micro / 1e6 for name, micro in found.items()}, charged(scene, end_s)


def report(scene: Scene, settings: LedgerSettings) -> dict[str, Any]:
    out = io.StringIO()
    with redirect_stdout(out):
        assert show_report(CostRequest("", "", Path("none"), str(settings.path), ""), "json", scene.sim.clock) == 0
    return json.loads(out.getvalue())


def restarted(name: str, node_failure: str = "", **more: Any) -> Manifest:
    """A job whose pods are made anew, and that is evicted, or goes on elsewhere, once it loses a machine."""
    made = gpu_job(name, **more)
    made["spec"]["backoffLimit"] = 6
    if node_failure:
        made["metadata"].setdefault("annotations", {})["muster.dev/on-node-failure"] = node_failure
    return made


def silent(scene: Scene, hours: float, *, kills_after_h: float | None = None) -> None:
    """Nobody looks for so long; meanwhile a machine may die."""
    scene.sim.advance(600)
    scene.sim.crash()
    if kills_after_h is not None:
        scene.sim.advance(kills_after_h * HOUR_S)
        scene.sim.cloud.kill(scene.sim.machines()[0].id)
        hours -= kills_after_h
    scene.sim.advance(hours * HOUR_S)
    scene.sim.restart()
    scene.sim.advance(120)


@pytest.mark.parametrize("hours", [0.2, 5.0, 30.0])
def test_who_runs_all_the_while_pays_for_all_of_it(settings: LedgerSettings, hours: float) -> None:
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g"))
    silent(scene, hours)
    assert books(scene) == {"t": pytest.approx(charged(scene, scene.sim.now_s), rel=0.005)}
    by_name, usd = ledger_usd(scene, settings)
    assert by_name == {"g": pytest.approx(usd, rel=0.005)}


def test_who_ends_meanwhile_pays_until_its_job_says_it_ended(settings: LedgerSettings) -> None:
    """It runs for three hours of the five; what its machine cost afterwards is nobody's, and is in the bill."""
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(gpu_job("g", run_s=3 * HOUR_S))
    silent(scene, 5.0)
    usd = charged(scene, scene.sim.now_s)
    said = books(scene)
    assert sum(said.values()) == pytest.approx(usd, rel=0.005)
    assert said["t"] == pytest.approx(3 * 55.04, rel=0.02)
    assert said[UNOBSERVED] == pytest.approx(usd - 3 * 55.04, rel=0.05)
    by_name, usd = ledger_usd(scene, settings)
    assert sum(by_name.values()) == pytest.approx(usd, rel=0.005)
    assert by_name["g"] == pytest.approx(said["t"], rel=0.001)


@pytest.mark.parametrize(
    ("hours", "kills_after_h"),
    [
        pytest.param(0.5, 0.2, id="the cloud lists its end"),
        pytest.param(5.0, 4.8, id="it lists the end, after hours"),
        pytest.param(5.0, 0.3, id="it has forgotten it: the node is silent since then"),
    ],
)
@pytest.mark.parametrize("node_failure", ["Replace", "Evict"])
def test_a_machine_that_dies_meanwhile_bills_until_then(
    settings: LedgerSettings, hours: float, kills_after_h: float, node_failure: str
) -> None:
    scene = Scene(simple(), ledger=settings, tempo=SLOW)
    scene.runs(restarted("g", node_failure, pods=2))
    silent(scene, hours, kills_after_h=kills_after_h)
    assert sum(books(scene).values()) == pytest.approx(charged(scene, scene.sim.now_s), rel=0.005)
    by_name, usd = ledger_usd(scene, settings)
    assert sum(by_name.values()) == pytest.approx(usd, rel=0.005)
    assert by_name["g"] == pytest.approx(usd, rel=0.01)
    evicted, found = node_failure == "Evict", report(scene, settings)
    assert found["evictions"] == evicted, "who goes on elsewhere is not"
    assert found["lostGpuHours"] == pytest.approx(16 * evicted * (kills_after_h + 600 / HOUR_S), rel=0.03)


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        pytest.param({"until_s": float("nan")}, "when they were charged last (nan)", id="no instant"),
        pytest.param({"total": -1}, "cannot be read, and begin anew", id="no books"),
    ],
)
def test_books_that_are_not_as_they_were_kept_are_told_of(kept: dict[str, float], words: str) -> None:
    scene = Scene(simple(), tempo=SLOW)
    scene.runs(gpu_job("g"))
    scene.sim.advance(3600)
    before = sum(books(scene).values())
    scene.sim.crash()
    found = scene.sim.object("ConfigMap", "muster-books", "muster-system")
    assert found is not None
    text = json.dumps(json.loads(found["data"]["books.json"]) | kept)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "muster-books"}, "data": {"books.json": text}}
    scene.sim.api.apply(CONFIG_MAPS, "muster-books", body, "muster-system", force=True)
    scene.sim.restart()
    scene.sim.advance(180)
    conditions = {it["type"]: it for it in scene.sim.sync()["conditions"]}
    assert (conditions["BooksFailed"]["status"], conditions["BooksFailed"]["reason"]) == ("True", "NotRead")
    assert words in conditions["BooksFailed"]["message"]
    assert sum(books(scene).values()) < before * 1.1


def test_two_agents_and_several_silences_charge_each_hour_once(settings: LedgerSettings) -> None:
    scene = Scene(files(pool(), team(), queue()), ledger=settings, tempo=SLOW, agents=2)
    scene.runs(restarted("g", pods=2))
    for hours in (2.0, 0.1, 3.0):
        scene.sim.advance(700)
        for seat in scene.sim.seats:
            seat.end()
        scene.sim.advance(hours * HOUR_S)
        scene.sim.restart()
    scene.sim.advance(300)
    assert books(scene) == {"t": pytest.approx(charged(scene, scene.sim.now_s), rel=0.01)}
    by_name, usd = ledger_usd(scene, settings)
    assert by_name == {"g": pytest.approx(usd, rel=0.01)}
