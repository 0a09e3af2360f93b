"""What a month comes to, by the page, by `muster cost` and by `muster report`: one number, also over a silence."""

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from agent.cli.cost import CostRequest, show_costs
from agent.cli.report import show_report
from agent.ledger import terms_of
from agent.ledger_settings import LedgerSettings
from agent.simulation import Tempo
from agent.sync import SyncState
from agent.web.seen import Scope
from agent.web.view import Looking
from agent.web.views_machines import TeamMoney, money
from fleet.cost.records import DAY_S, HOUR_S
from fleet.cost.statement import Month
from model import labels
from providers.sim.ec2 import HeldReservation
from tests.agent.scenes import P5, A, Scene, files, gpu_job, pool, queue, team

SLOW = Tempo(tick_s=5.0, foresees=False)
ON_DEMAND_USD_H = 55.04


def page(scene: Scene, settings: LedgerSettings) -> dict[str, TeamMoney]:
    """The rows of the page on money, by team."""
    sim = scene.sim
    snapshot = sim.brain.mirror.snapshot(sim.now_s, frozenset())
    assert sim.brain.sync.fleet is not None
    terms = terms_of(settings)
    look = Looking(sim.brain.sync.fleet, snapshot, SyncState(), (), (), Scope(), {}, (), terms)
    rows: Sequence[TeamMoney] = money(look).parts[0].values["rows"]
    return {it.team: it for it in rows}


def said(scene: Scene, settings: LedgerSettings, *, by: str = "team") -> dict[str, Any]:
    """What `muster cost` says, as JSON."""
    out, ask = io.StringIO(), CostRequest("", by, Path("none"), str(settings.path), "")
    with redirect_stdout(out):
        assert show_costs(ask, "json", scene.sim.clock) == 0
    return json.loads(out.getvalue())


def reported(scene: Scene, settings: LedgerSettings) -> dict[str, Any]:
    out, ask = io.StringIO(), CostRequest("", "", Path("none"), str(settings.path), "")
    with redirect_stdout(out):
        assert show_report(ask, "json", scene.sim.clock) == 0
    return json.loads(out.getvalue())


@pytest.mark.parametrize(
    ("kind", "capacity_types", "afterwards_usd_h"),
    [
        pytest.param("", ["on-demand"], ON_DEMAND_USD_H, id="no reservation"),
        pytest.param("capacity-block", ["reserved"], 0.0, id="a block, and nothing else"),
        pytest.param("capacity-block", ["reserved", "on-demand"], ON_DEMAND_USD_H, id="a block, then on demand"),
        pytest.param("default", ["reserved", "on-demand"], ON_DEMAND_USD_H, id="a reservation, then on demand"),
    ],
)
def test_page_cost_and_report_say_the_same_and_see_a_reservation_end(
    tmp_path: Path, kind: str, capacity_types: list[str], afterwards_usd_h: float
) -> None:
    settings = LedgerSettings(path=tmp_path / "ledger.db")
    scene = Scene(files(pool(capacityTypes=capacity_types), team(), queue()), ledger=settings, tempo=SLOW)
    ends_s = scene.sim.now_s + 2 * DAY_S
    if kind:
        held = HeldReservation("cr-a", P5, A, 1, kind=kind, ends_s=ends_s, tags={labels.CLUSTER: "default"})  # type: ignore[arg-type]
        scene.sim.cloud.account.reserve(held)
        scene.sim.advance(61)
    scene.runs(gpu_job("g"))
    scene.sim.advance(600)
    scene.sim.crash()
    scene.sim.advance(5 * HOUR_S)
    scene.sim.restart()
    scene.sim.advance(300)
    row, told = page(scene, settings)["t"], said(scene, settings)
    (line,) = (it for it in told["lines"] if it["team"] == "t")
    assert line["usd"] == pytest.approx(row.spent_usd, rel=0.02), "the ledger was kept up to a minute ago"
    assert line["forecastUsd"] == pytest.approx(row.forecast_usd, rel=0.0005)
    assert reported(scene, settings)["forecastUsd"] == told["total"]["forecastUsd"]
    now_s, end_s = scene.sim.now_s, Month.of(scene.sim.now_s).end_s
    turns_s = end_s if not kind else ends_s - (1800 if kind == "capacity-block" else 0)
    to_come = ((turns_s - now_s) * ON_DEMAND_USD_H + (end_s - turns_s) * afterwards_usd_h) / HOUR_S
    assert row.forecast_usd - row.spent_usd == pytest.approx(to_come, rel=0.001)
    by_day = {it["day"]: it["forecastUsd"] for it in said(scene, settings, by="day")["lines"]}
    assert sum(by_day.values()) == pytest.approx(told["total"]["forecastUsd"])
    assert set(by_day) == {"2027-01-15", "later days"}
