"""Prometheus metrics: a registry of our own, and never a label per pod, job or machine."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from agent.failures import SetAside
from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.standing import queue_label, standing, sync_standing
from agent.sync import SyncState
from agent.watch import OnceDone, Watcher
from fleet.actions import Action, LaunchMachines, SaveClaim, SaveGang, TerminateMachines
from fleet.cost.lost_work import lost_device_s
from fleet.cost.uses import CostTerms
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from model.index import Index

log = structlog.get_logger(__name__)


class Metrics(Watcher):
    """Counts what the brain does and shows how the fleet stands."""

    def __init__(self) -> None:
        self._once_done = OnceDone()
        self.registry = CollectorRegistry()
        counter, histogram, gauge = self._makers()
        failures = counter(
            "muster_scrape_failures_total", "Parts of a scrape that could not be worked out and are not in it", ["part"]
        )
        self._standing = LatestPicture(lambda part: failures.labels(part).inc())
        self.registry.register(self._standing)
        self.actions = counter("muster_actions_total", "Actions carried out, by kind and result", ["action", "result"])
        self.failures = counter(
            "muster_decider_failures_total",
            "Decisions that failed, by decider and by what they were about",
            ["decider", "kind"],
        )
        self.source_failures = counter(
            "muster_source_failures_total", "Failures of sources (git, cloud, watches), by kind", ["source", "kind"]
        )
        self.turn_s = histogram(
            "muster_turn_duration_seconds",
            "Seconds that one pass of all deciders takes",
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
        )
        self.events = counter("muster_events_total", "Events taken from the inbox, by kind", ["event"])
        self.wait_s = histogram(
            "muster_admission_wait_seconds",
            "Seconds from the creation of a gang to its admission",
            ["queue"],
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14400, 86400),
        )
        self.news_dropped = counter("muster_news_dropped_total", "Events that were not written")
        self.notifications = counter(
            "muster_notifications_total", "Attempts to notify a sink, by what came of it", ["sink", "outcome"]
        )
        self.lost_s = counter(
            "muster_lost_device_seconds_total",
            "Seconds of GPUs, or of gangs without, whose work since the last checkpoint was lost with an eviction",
            ["queue", "reason"],
        )
        self.launch_s = histogram(
            "muster_launch_duration_seconds",
            "Seconds from the decision to buy a machine until it is ready",
            ["node_pool"],
            buckets=(30, 60, 120, 180, 300, 600, 1200, 3600),
        )
        self.evictions = counter("muster_evictions_total", "Gangs evicted", ["queue", "reason"])
        self.bought = counter("muster_machines_bought_total", "Machines bought", ["node_pool"])
        self.unhealthy = counter("muster_instance_unhealthy_total", "Failed checks of EC2", ["category"])
        self.returned = counter("muster_machines_returned_total", "Machines given back", ["reason"])
        self.shortfalls = counter(
            "muster_launch_failures_total", "Failures of launches, by what to do about them", ["error"]
        )
        self._count_from_outside()
        self.leading = gauge("muster_leading", "1 while this process holds the lease")
        self.clock_offset = gauge(
            "muster_clock_offset_seconds", "The API server's time, the agent's, less its machine's"
        )

    def _count_from_outside(self) -> None:
        counter, histogram, _ = self._makers()
        self._unexplained = counter(
            "muster_explanation_failures_total",
            "Steps in finding out why gangs wait, when they start and what would help that failed, by step",
            ["step"],
        )
        self._api_requests = counter(
            "muster_api_requests_total", "Requests to the API server, by method and status", ["method", "code"]
        )
        self._api_s = histogram(
            "muster_api_request_duration_seconds",
            "Seconds until the API server began to answer",
            ["method"],
            buckets=(0.005, 0.025, 0.1, 0.5, 1, 5, 30),
        )
        self._refused = counter(
            "muster_http_refused_total",
            "Connections that were refused or cut off, and requests that are no HTTP, by server and reason",
            ["server", "reason"],
        )
        self._reviews = counter(
            "muster_pull_request_reviews_total", "Pull requests planned, by what came of it", ["outcome"]
        )
        self._deliveries = counter("muster_webhook_deliveries_total", "Deliveries to the webhook", ["sender", "status"])

    def _makers(self) -> tuple[partial[Counter], partial[Histogram], partial[Gauge]]:
        """What makes metrics in this registry, one for each type."""
        return (
            partial(Counter, registry=self.registry),
            partial(Histogram, registry=self.registry),
            partial(Gauge, registry=self.registry),
        )

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def refused(self, server: str, why: str) -> None:
        """Count what a server has not taken."""
        self._refused.labels(server, why).inc()

    def reviewed(self, outcome: str) -> None:
        """Count a pull request that was planned, or failed to be."""
        self._reviews.labels(outcome).inc()

    def not_explained(self, step: str) -> None:
        """Count a step of the explanations' keeper that failed."""
        self._unexplained.labels(step).inc()

    def delivered(self, sender: str, status: int) -> None:
        """Count a delivery and its answer."""
        self._deliveries.labels(sender or "unknown", str(status)).inc()

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Look whether a gang is admitted or evicted, or a machine ready, by what is about to be written."""
        if isinstance(action, SaveClaim):
            self._saving(action, mirror)
        if not isinstance(action, SaveGang):
            return
        gang = action.gang
        queue = self._standing.queue_of(gang)
        before = mirror.gangs.current.get(f"{gang.namespace}/{gang.workload}")
        state = before.state if before else None
        if gang.state is GangState.ADMITTED and state is not GangState.ADMITTED:
            waited_s = max(0.0, now_s - gang.created_at_s)
            self._once_done.keep(action, lambda: self.wait_s.labels(queue).observe(waited_s))
        starts = gang.state is GangState.EVICTING and state is not GangState.EVICTING
        if starts or gang.evictions > (before.evictions if before else 0):  # who waits for machines leaves at once
            reason = gang.eviction.reason if gang.eviction else gang.reason
            lost_s = lost_device_s(before, now_s) if before is not None else 0.0

            def count() -> None:
                self.evictions.labels(queue, reason).inc()
                self.lost_s.labels(queue, reason).inc(lost_s)

            self._once_done.keep(action, count)

    def _saving(self, action: SaveClaim, mirror: Mirror) -> None:
        claim = action.claim
        before = mirror.claims.current.get(claim.name)
        if claim.ready_at_s and before is not None and not before.ready_at_s and not claim.adopts:
            took_s = max(0.0, claim.ready_at_s - claim.created_at_s)
            self._once_done.keep(action, lambda: self.launch_s.labels(claim.node_pool).observe(took_s))

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Count actions, admissions and evictions, and what launches brought."""
        self._once_done.ended(event)
        result = "done" if isinstance(event, Done) else "failed"
        self.actions.labels(type(event.action).__name__, result).inc()
        if isinstance(event, Failed):
            return
        if isinstance(event.action, TerminateMachines):
            self.returned.labels(event.action.reason).inc(len(event.action.instance_ids))
        elif isinstance(event.action, LaunchMachines) and event.outcome is not None:
            self.bought.labels(event.action.request.node_pool).inc(len(event.outcome.instances))
            for failure in event.outcome.failures:
                self.shortfalls.labels(failure.error).inc()

    def stumbled(self, found: SetAside, snapshot: Snapshot) -> None:
        """Count failures of deciders: each is a defect worth an alert."""
        self.failures.labels(found.decider, found.kind).inc()

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Show how the fleet stands."""
        self._standing.show(fleet, snapshot)

    def lead(self, state: Callable[[], SyncState], terms: CostTerms) -> None:
        """Show how a brain's sync stands from now on; `terms` tell costs apart."""
        self._standing.state, self._standing.terms = state, terms

    def asked_api(self, method: str, code: int, took_s: float) -> None:
        """Count a request to the API server; code 0 = there was no answer."""
        self._api_requests.labels(method, str(code)).inc()
        self._api_s.labels(method).observe(took_s)


class LatestPicture(Collector):
    """How the fleet stood when it was shown last, worked out when somebody scrapes and not by the brain's thread.

    A scrape that runs meanwhile sees the old picture or the new one, whole. A part that cannot be worked out is not in
    it, and `failed` hears which: whoever is called for one part does not lose the others.
    """

    def __init__(self, failed: Callable[[str], object]) -> None:
        self._failed = failed
        self._index = Index()
        self._shown: tuple[Fleet, Snapshot] | None = None
        self.state: Callable[[], SyncState] = SyncState
        self.terms = CostTerms(payer_of)

    def show(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Take another picture in place of the last one; its views are kept apart from those of the brain."""
        self._shown = fleet, replace(snapshot, index=self._index)

    def queue_of(self, gang: Gang) -> str:
        """Returns the queue of a gang as a label, by the fleet that was shown last."""
        return queue_label(self._shown[0], gang) if self._shown is not None else gang.queue

    def collect(self) -> Iterable[Metric]:
        """The picture, for whoever scrapes."""
        shown = self._shown
        parts: dict[str, Callable[[], Iterable[Metric]]] = {"sync": lambda: sync_standing(self.state())}
        parts |= standing(*shown, self.terms) if shown is not None else {}
        return [metric for name, part in parts.items() for metric in self._worked_out(name, part)]

    def _worked_out(self, name: str, part: Callable[[], Iterable[Metric]]) -> Iterable[Metric]:
        try:
            return list(part())
        except Exception:
            log.exception("metrics_not_worked_out", part=name)
            self._failed(name)
            return ()

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before the first picture."""
        return ()
