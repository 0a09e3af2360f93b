"""Writes recording and alert rules over the agent's metrics: `python -m tools.alerts deploy`.

An alert asks for a person, so each has a section of the runbook (docs/guides/runbooks.md), which a test looks for. Real
`promtool` checks and tries the rules in the tests.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

FILE: Final = "components/alerts/prometheus-rule.yaml"
RUNBOOKS: Final = "docs/guides/runbooks.md"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert: what has to hold for how long, how bad that is, and a sentence with the labels of what it is about."""

    name: str
    expr: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str


RECORDED: Final[Mapping[str, str]] = {
    "muster:gpus_used:ratio": 'sum(muster_gpus{state="Used"}) / sum(muster_gpus{state=~"Used|Idle"})',
    "muster:team_gpus_borrowed:sum": 'sum by (team) (muster_team_quota_borrowed{resource="nvidia.com/gpu"})',
    "muster:usd_per_hour:sum": "sum(muster_usd_per_hour)",
    "muster:spot_share:ratio": (
        '(sum(muster_capacity_usd_per_hour{capacity_type="spot"}) or vector(0)) / sum(muster_capacity_usd_per_hour)'
    ),
    "muster:turn_seconds:p99_5m": (
        "histogram_quantile(0.99, sum by (le) (rate(muster_turn_duration_seconds_bucket[5m])))"
    ),
    "muster:api_errors:ratio_5m": (
        '(sum(rate(muster_api_requests_total{code=~"0|429|5.."}[5m])) or vector(0))'
        " / sum(rate(muster_api_requests_total[5m]))"
    ),
}
"""Name -> expression, for long ranges and for the alerts below."""

ALERTS: Final = (
    AlertRule(
        "MusterNobodyLeads", "absent(muster_leading == 1)", "5m", "critical", "No agent leads: nothing is decided."
    ),
    AlertRule(
        "MusterSyncStalled", "max(muster_sync_stalled) == 1", "10m", "warning", "The repository waits for a person."
    ),
    AlertRule(
        "MusterSourceFailed",
        "max(muster_sync_source_failed) == 1",
        "15m",
        "warning",
        "The repository cannot be read; the revision in force stays.",
    ),
    AlertRule(
        "MusterDecisionFailed",
        "sum by (decider, kind) (increase(muster_decider_failures_total[15m])) > 0",
        "0m",
        "warning",
        "{{ $labels.decider }} failed about a {{ $labels.kind }}, which is set aside.",
    ),
    AlertRule(
        "MusterExplanationsFail",
        "sum by (step) (increase(muster_explanation_failures_total[30m])) > 5",
        "15m",
        "warning",
        "Explanations lack what {{ $labels.step }} finds: it fails time and again.",
    ),
    AlertRule(
        "MusterTurnsSlow",
        "muster:turn_seconds:p99_5m > 2",
        "10m",
        "warning",
        "One turn in a hundred takes {{ $value | humanizeDuration }}.",
    ),
    AlertRule(
        "MusterApiErrors",
        "muster:api_errors:ratio_5m > 0.05",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the requests to the API server fail.",
    ),
    AlertRule(
        "MusterGangWaitsLong",
        "max by (queue) (muster_oldest_wait_seconds) > 86400",
        "5m",
        "warning",
        "In queue {{ $labels.queue }} a gang has waited for {{ $value | humanizeDuration }}.",
    ),
    AlertRule(
        "MusterLaunchesFail",
        "sum by (error) (increase(muster_launch_failures_total[30m])) > 20",
        "10m",
        "warning",
        "{{ $value | humanize }} launches failed within half an hour: {{ $labels.error }}.",
    ),
    AlertRule(
        "MusterMachinesUnclaimed",
        "max(muster_orphaned_machines) > 0",
        "30m",
        "warning",
        "{{ $value | humanize }} machines of this cluster have no claim and cost money.",
    ),
    AlertRule(
        "MusterBudgetNearlySpent",
        "min by (team) (muster_budget_left_usd / muster_budget_usd_month) < 0.1",
        "5m",
        "warning",
        "Team {{ $labels.team }} has {{ $value | humanizePercentage }} of its budget left.",
    ),
    AlertRule(
        "MusterGpusIdle",
        "muster:gpus_used:ratio < 0.3 and sum(muster_pending_gangs) > 0",
        "1h",
        "warning",
        "{{ $value | humanizePercentage }} of the GPUs are used while gangs wait.",
    ),
    AlertRule(
        "MusterPricesOld",
        "max(muster_prices_age_seconds) > 172800 and max(muster_leading) == 1",
        "1h",
        "warning",
        "Prices are {{ $value | humanizeDuration }} old.",
    ),
)


def groups() -> list[dict[str, Any]]:
    """Rule groups as Prometheus reads them."""
    recorded = [{"record": name, "expr": expr} for name, expr in RECORDED.items()]
    return [
        {"name": "muster.records", "rules": recorded},
        {"name": "muster.alerts", "rules": list(map(_alert, ALERTS))},
    ]


def _alert(rule: AlertRule) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.lasts,
        "labels": {"severity": rule.severity},
        "annotations": {"summary": rule.summary, "runbook": f"{RUNBOOKS}#{rule.name.lower()}"},
    }


def manifests() -> Mapping[str, str]:
    """Path below `deploy/` -> its content."""
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "muster", "namespace": "muster-system"},
        "spec": {"groups": groups()},
    }
    written = "Written by tools/alerts.py (`make schema`).\n"
    kustomization = (
        f"# For clusters with the Prometheus operator: recording rules and alerts. {written}"
        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n  - prometheus-rule.yaml\n"
    )
    text = yaml.safe_dump(rule, sort_keys=False, width=10_000, allow_unicode=True)
    return {
        FILE: f"# What a person is called for: docs/guides/runbooks.md. {written}{text}",
        "components/alerts/kustomization.yaml": kustomization,
    }


def main(folder: Path) -> None:
    """Writes every manifest below `folder`."""
    for name, content in manifests().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
