"""Writes Grafana's dashboards over the agent's metrics: `python -m tools.dashboards deploy`.

What is asked stands here as a table; the SDK of Grafana makes typed panels of it. A test has a real Prometheus answer
every query.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER: Final = "components/dashboards"
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH: Final = 24
Kind = Literal["stat", "series", "table"]


@dataclass(frozen=True, slots=True)
class GrafanaPanel:
    """One panel: queries with the legend of each, and the unit as Grafana names it."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: Kind = "series"
    span: int = 12
    """Of 24 columns."""


@dataclass(frozen=True, slots=True)
class GrafanaBoard:
    """One dashboard."""

    name: str
    title: str
    panels: tuple[GrafanaPanel, ...]


def _one(title: str, expr: str, unit: str = "short") -> GrafanaPanel:
    return GrafanaPanel(title, ((expr, ""),), unit, "stat", 4)


def _by(title: str, expr: str, legend: str, unit: str = "short") -> GrafanaPanel:
    return GrafanaPanel(title, ((expr, legend),), unit)


def _rate(metric: str, by: str, per_s: int = 60) -> str:
    """Returns a query for how often something happens a minute; nothing yet counts as never."""
    return f"sum by ({by}) (rate({metric}[$__rate_interval])) * {per_s} or vector(0)"


def _quantile(metric: str, by: str = "", part: float = 0.95) -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({part}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


BOARDS: Final = (
    GrafanaBoard(
        "fleet",
        "Muster: fleet",
        (
            _one("Machines", "sum(muster_machines)"),
            _one("Not ready", 'sum(muster_machines{state!="Ready"}) or vector(0)'),
            _one("GPUs in use", 'sum(muster_gpus{state="Used"}) / sum(muster_gpus{state=~"Used|Idle"})', "percentunit"),
            _one("GPUs idle", 'sum(muster_gpus{state="Idle"})'),
            _one("Kinds short", "count(muster_shortages) or vector(0)"),
            _one("Without a claim", "sum(muster_orphaned_machines)"),
            _by("Machines by pool and state", "sum by (node_pool, state) (muster_machines)", "{{node_pool}} {{state}}"),
            _by("GPUs and slices", "sum by (model, resource, state) (muster_gpus)", "{{model}} {{resource}} {{state}}"),
            _by("Machines by capacity type", "sum by (capacity_type) (muster_capacity_machines)", "{{capacity_type}}"),
            _by(
                "Shortages",
                "sum by (capacity_type, instance_type) (muster_shortages) or vector(0)",
                "{{capacity_type}} {{instance_type}}",
            ),
            _by(
                "Until a machine is ready (95 %)",
                _quantile("muster_launch_duration_seconds", "node_pool"),
                "{{node_pool}}",
                "s",
            ),
            _by("Bought a minute", _rate("muster_machines_bought_total", "node_pool"), "{{node_pool}}"),
            _by("Given back a minute", _rate("muster_machines_returned_total", "reason"), "{{reason}}"),
            _by("Launches that failed a minute", _rate("muster_launch_failures_total", "error"), "{{error}}"),
        ),
    ),
    GrafanaBoard(
        "queues",
        "Muster: queues",
        (
            _one("Gangs that run", 'sum(muster_gangs{state="Admitted"}) or vector(0)'),
            _one("Gangs that wait", "sum(muster_pending_gangs) or vector(0)"),
            _one("Longest wait", "max(muster_oldest_wait_seconds) or vector(0)", "s"),
            _one("Borrowed GPUs", 'sum(muster_team_quota_borrowed{resource="nvidia.com/gpu"})'),
            _by("Waiting by why", "sum by (queue, reason) (muster_pending_gangs) or vector(0)", "{{queue}} {{reason}}"),
            _by("Longest wait by queue", "max by (queue) (muster_oldest_wait_seconds) or vector(0)", "{{queue}}", "s"),
            _by("Until admission (95 %)", _quantile("muster_admission_wait_seconds", "queue"), "{{queue}}", "s"),
            _by("Gangs by queue and state", "sum by (queue, state) (muster_gangs)", "{{queue}} {{state}}"),
            GrafanaPanel(
                "GPU quota by team",
                (
                    ('sum by (team) (muster_team_quota_guaranteed{resource="nvidia.com/gpu"})', "{{team}} guaranteed"),
                    ('sum by (team) (muster_team_quota_used{resource="nvidia.com/gpu"})', "{{team}} used"),
                ),
            ),
            GrafanaPanel(
                "Borrowed and lent GPUs",
                (
                    ('sum by (team) (muster_team_quota_borrowed{resource="nvidia.com/gpu"})', "{{team}} borrowed"),
                    ('sum by (team) (muster_team_quota_lent{resource="nvidia.com/gpu"})', "{{team}} lent"),
                ),
            ),
            _by("Evicted a minute", _rate("muster_evictions_total", "queue, reason"), "{{queue}} {{reason}}"),
            _by("GPU hours lost an hour", _rate("muster_lost_device_seconds_total", "reason", 1), "{{reason}}"),
        ),
    ),
    GrafanaBoard(
        "money",
        "Muster: money",
        (
            _one("USD an hour", "sum(muster_usd_per_hour)", "currencyUSD"),
            _one("This month", "sum(muster_spent_usd_month)", "currencyUSD"),
            _one(
                "Spot's share",
                '(sum(muster_capacity_usd_per_hour{capacity_type="spot"}) or vector(0))'
                " / sum(muster_capacity_usd_per_hour)",
                "percentunit",
            ),
            _one(
                "Used by nobody",
                'sum(muster_team_usd_per_hour{team=""}) / sum(muster_team_usd_per_hour) or vector(0)',
                "percentunit",
            ),
            _one(
                "Least budget left", "min(muster_budget_left_usd / muster_budget_usd_month) or vector(1)", "percentunit"
            ),
            _one("Age of prices", "max(muster_prices_age_seconds)", "s"),
            _by("USD an hour by team", "sum by (team) (muster_team_usd_per_hour)", "{{team}}", "currencyUSD"),
            _by("USD an hour by pool", "sum by (node_pool) (muster_usd_per_hour)", "{{node_pool}}", "currencyUSD"),
            _by(
                "USD an hour by capacity type",
                "sum by (capacity_type) (muster_capacity_usd_per_hour)",
                "{{capacity_type}}",
                "currencyUSD",
            ),
            GrafanaPanel(
                "The month by team",
                (
                    ("sum by (team) (muster_spent_usd_month)", "{{team}} spent"),
                    ("sum by (team) (muster_budget_usd_month) or vector(0)", "{{team}} budget"),
                ),
                "currencyUSD",
            ),
        ),
    ),
    GrafanaBoard(
        "agent",
        "Muster: agent",
        (
            _one("Leads", "sum(muster_leading)"),
            _one("Sync stalled", "max(muster_sync_stalled)"),
            _one("Repository unreadable", "max(muster_sync_source_failed)"),
            _one("Left of the revision", "max(muster_sync_left)"),
            _one("A turn (99 %)", _quantile("muster_turn_duration_seconds", part=0.99), "s"),
            _one("Clock's offset", "max(abs(muster_clock_offset_seconds))", "s"),
            GrafanaPanel(
                "Revision",
                (("max by (revision, outcome) (muster_revision_info)", "{{revision}} {{outcome}}"),),
                "short",
                "table",
                24,
            ),
            GrafanaPanel(
                "Turns",
                tuple((_quantile("muster_turn_duration_seconds", part=part), f"{part:.0%}") for part in (0.5, 0.99)),
                "s",
            ),
            _by("Events a minute", _rate("muster_events_total", "event"), "{{event}}"),
            _by("Actions a minute", _rate("muster_actions_total", "action, result"), "{{action}} {{result}}"),
            _by("Decisions that failed a minute", _rate("muster_decider_failures_total", "decider"), "{{decider}}"),
            _by("Explanations that failed a minute", _rate("muster_explanation_failures_total", "step"), "{{step}}"),
            _by("API server (95 %)", _quantile("muster_api_request_duration_seconds", "method"), "{{method}}", "s"),
            _by(
                "Requests that failed a minute",
                _rate('muster_api_requests_total{code=~"0|4..|5.."}', "method, code"),
                "{{method}} {{code}}",
            ),
            _by(
                "Sources that failed a minute",
                _rate("muster_source_failures_total", "source, kind"),
                "{{source}} {{kind}}",
            ),
            _by(
                "Connections refused a minute",
                _rate("muster_http_refused_total", "server, reason"),
                "{{server}} {{reason}}",
            ),
        ),
    ),
)


def queries() -> Iterator[tuple[str, str, str]]:
    """Every query: dashboard, panel and expression."""
    for board in BOARDS:
        for panel in board.panels:
            for expr, _ in panel.queries:
                yield board.name, panel.title, expr


def rendered(board: GrafanaBoard) -> str:
    """A dashboard as Grafana imports it."""
    built = boards.Dashboard(board.title).uid(f"muster-{board.name}").tags(["muster"]).refresh("30s")
    built = built.time("now-6h", "now").timezone("utc").editable()
    built = built.with_variable(boards.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for panel in board.panels:
        built = built.with_panel(_panel(panel))
    return json.dumps(json.loads(JSONEncoder(sort_keys=True).encode(built.build())), indent=1, sort_keys=True) + "\n"


_Built = stat.Panel | timeseries.Panel | table.Panel
_MAKERS: Final[Mapping[Kind, Callable[[], _Built]]] = {
    "stat": stat.Panel,
    "series": timeseries.Panel,
    "table": table.Panel,
}
_HEIGHTS: Final[Mapping[Kind, int]] = {"stat": 4, "series": 8, "table": 6}


def _panel(panel: GrafanaPanel) -> _Built:
    made = _MAKERS[panel.kind]().title(panel.title).unit(panel.unit).datasource(_SOURCE)
    made = made.span(panel.span).height(_HEIGHTS[panel.kind])
    for number, (expr, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(chr(ord("A") + number))
        query = query.range() if panel.kind == "series" else query.instant()
        made = made.with_target(query.format(PromQueryFormat.TABLE) if panel.kind == "table" else query)
    return made


def manifests() -> Mapping[str, str]:
    """Path below `deploy/` -> its content."""
    files = [f"{board.name}.json" for board in BOARDS]
    generated = "".join(f"      - {name}\n" for name in files)
    kustomization = (
        "# Four dashboards for Grafana's sidecar. Written by tools/dashboards.py (`make schema`).\n"
        "apiVersion: kustomize.config.k8s.io/v1alpha1\n"
        "kind: Component\n"
        "configMapGenerator:\n"
        "  - name: muster-dashboards\n"
        "    namespace: muster-system\n"
        f"    files:\n{generated}"
        "    options:\n"
        "      disableNameSuffixHash: true\n"
        "      labels:\n"
        '        grafana_dashboard: "1"\n'
    )
    told = {f"{FOLDER}/{board.name}.json": rendered(board) for board in BOARDS}
    return told | {f"{FOLDER}/kustomization.yaml": kustomization}


def main(folder: Path) -> None:
    """Writes every manifest below `folder`."""
    for name, content in manifests().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
