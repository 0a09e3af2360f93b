"""The rules in real `promtool`: they are well formed, fire when they should and not before, and have a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.test_standing import families, promtool
from tools import alerts, dashboards

ROOT = Path(__file__).resolve().parents[2]
LONG = "x200"
"""Samples, one a minute: longer than any alert waits."""

# Alert -> the series that make it fire, the labels it has then, and series with which it does not.
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "MusterNobodyLeads": ({"muster_leading": f"0+0{LONG}"}, {}, {"muster_leading": f"1+0{LONG}"}),
    "MusterSyncStalled": ({"muster_sync_stalled": f"1+0{LONG}"}, {}, {"muster_sync_stalled": f"0+0{LONG}"}),
    "MusterSourceFailed": (
        {"muster_sync_source_failed": f"1+0{LONG}"},
        {},
        {"muster_sync_source_failed": f"0+0{LONG}"},
    ),
    "MusterDecisionFailed": (
        {'muster_decider_failures_total{decider="drift",kind="claim"}': f"0+1{LONG}"},
        {"decider": "drift", "kind": "claim"},
        {'muster_decider_failures_total{decider="drift",kind="claim"}': f"7+0{LONG}"},
    ),
    "MusterExplanationsFail": (
        {'muster_explanation_failures_total{step="look_ahead"}': f"0+1{LONG}"},
        {"step": "look_ahead"},
        {'muster_explanation_failures_total{step="look_ahead"}': f"0+0x100 1+0{LONG}"},
    ),
    "MusterTurnsSlow": (
        {
            'muster_turn_duration_seconds_bucket{le="2"}': f"0+0{LONG}",
            'muster_turn_duration_seconds_bucket{le="10"}': f"0+60{LONG}",
            'muster_turn_duration_seconds_bucket{le="+Inf"}': f"0+60{LONG}",
        },
        {},
        {
            'muster_turn_duration_seconds_bucket{le="2"}': f"0+60{LONG}",
            'muster_turn_duration_seconds_bucket{le="10"}': f"0+60{LONG}",
            'muster_turn_duration_seconds_bucket{le="+Inf"}': f"0+60{LONG}",
        },
    ),
    "MusterApiErrors": (
        {'muster_api_requests_total{code="500"}': f"0+6{LONG}", 'muster_api_requests_total{code="200"}': f"0+60{LONG}"},
        {},
        {'muster_api_requests_total{code="404"}': f"0+60{LONG}", 'muster_api_requests_total{code="500"}': f"0+1{LONG}"},
    ),
    "MusterGangWaitsLong": (
        {'muster_oldest_wait_seconds{queue="q"}': f"90000+60{LONG}"},
        {"queue": "q"},
        {'muster_oldest_wait_seconds{queue="q"}': f"60+60{LONG}"},
    ),
    "MusterLaunchesFail": (
        {'muster_launch_failures_total{error="Shortage"}': f"0+2{LONG}"},
        {"error": "Shortage"},
        {'muster_launch_failures_total{error="Shortage"}': f"0+0{LONG}"},
    ),
    "MusterMachinesUnclaimed": (
        {"muster_orphaned_machines": f"3+0{LONG}"},
        {},
        {"muster_orphaned_machines": f"0+0{LONG}"},
    ),
    "MusterBudgetNearlySpent": (
        {'muster_budget_left_usd{team="a"}': f"5+0{LONG}", 'muster_budget_usd_month{team="a"}': f"100+0{LONG}"},
        {"team": "a"},
        {'muster_budget_left_usd{team="a"}': f"50+0{LONG}", 'muster_budget_usd_month{team="a"}': f"100+0{LONG}"},
    ),
    "MusterGpusIdle": (
        {
            'muster_gpus{state="Used"}': f"1+0{LONG}",
            'muster_gpus{state="Idle"}': f"9+0{LONG}",
            'muster_pending_gangs{queue="q"}': f"2+0{LONG}",
        },
        {},
        {'muster_gpus{state="Used"}': f"1+0{LONG}", 'muster_gpus{state="Idle"}': f"9+0{LONG}"},
    ),
    "MusterPricesOld": (
        {"muster_prices_age_seconds": f"200000+60{LONG}", "muster_leading": f"1+0{LONG}"},
        {},
        {"muster_prices_age_seconds": f"200000+60{LONG}", "muster_leading": f"0+0{LONG}"},
    ),
}


def rules_file(folder: Path) -> Path:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": alerts.groups()}), "utf-8")
    return file


def run(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [promtool(), *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_nothing_wrong(tmp_path: Path) -> None:
    assert "SUCCESS" in run("check", "rules", "--lint=all", "--lint-fatal", str(rules_file(tmp_path)), folder=tmp_path)


def test_every_alert_is_tried() -> None:
    assert CASES.keys() == {rule.name for rule in alerts.ALERTS}


def names_of(name: str, series: dict[str, str], expected: list[dict[str, Any]] | None) -> dict[str, Any]:
    """One case of a unit test; `expected` None: only that the alert's name is not among those that fire."""
    given = [{"series": it, "values": values} for it, values in series.items()]
    count = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    found = [{"labels": "{}", "value": len(expected)}] if expected else []
    asked = [{"expr": count, "eval_time": "180m", "exp_samples": found}]
    return {"interval": "1m", "input_series": given, "promql_expr_test": asked}


def test_each_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    tests = []
    for name, (bad, labels, good) in CASES.items():
        tests += [names_of(name, bad, [labels]), names_of(name, good, None)]
        every = ",".join(
            f'{key}="{value}"' for key, value in {"alertname": name, "alertstate": "firing", **labels}.items()
        )
        bad_series = [{"series": it, "values": values} for it, values in bad.items()]
        asked = [
            {"expr": f"count(ALERTS{{{every}}})", "eval_time": "180m", "exp_samples": [{"labels": "{}", "value": 1}]}
        ]
        tests.append({"interval": "1m", "input_series": bad_series, "promql_expr_test": asked})
    file = tmp_path / "test.yaml"
    told = {"rule_files": [rules_file(tmp_path).name], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(told), "utf-8")
    assert "SUCCESS" in run("test", "rules", file.name, folder=tmp_path)


def test_every_alert_has_a_section_of_the_runbook() -> None:
    told = re.findall(r"^## (\w+)$", (ROOT / alerts.RUNBOOKS).read_text("utf-8"), re.MULTILINE)
    assert told == [rule.name for rule in alerts.ALERTS]


def expressions() -> list[str]:
    return (
        [expr for *_, expr in dashboards.queries()]
        + [rule.expr for rule in alerts.ALERTS]
        + list(alerts.RECORDED.values())
    )


def test_every_metric_that_is_asked_for_is_one() -> None:
    known = families() | {name + end for name in families() for end in ("_bucket", "_sum", "_count")}
    asked = {name for expr in expressions() for name in re.findall(r"\bmuster_\w+", expr)}
    assert asked <= known


@pytest.mark.parametrize("made", [dashboards, alerts], ids=["dashboards", "alerts"])
def test_what_is_written_is_current(made: Any) -> None:
    """`make schema` writes it."""
    for name, content in made.manifests().items():
        assert (ROOT / "deploy" / name).read_text("utf-8") == content


def test_a_dashboard_is_what_grafana_imports() -> None:
    import json

    for board in dashboards.BOARDS:
        made = json.loads(dashboards.rendered(board))
        assert made["uid"] == f"muster-{board.name}"
        panels = [panel for panel in made["panels"] if panel["type"] != "row"]
        assert [panel["title"] for panel in panels] == [panel.title for panel in board.panels]
        assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)
        places = [(it["gridPos"]["x"], it["gridPos"]["y"]) for it in panels]
        assert len(set(places)) == len(places)
