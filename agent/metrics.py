"""Prometheus metrics: a registry of our own, and never a label per pod, job or machine."""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.failures import SetAside
from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.watch import OnceDone, Watcher
from fleet.actions import Action, LaunchMachines, SaveGang, TerminateMachines
from fleet.nodeclaims.garbage_collection import orphaned
from fleet.placement.pod_quota import ordinary_usage
from fleet.quota.admission_fair_sharing import usage_order_values
from fleet.quota.build_tree import charged_tree
from fleet.snapshot import GangState, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.fleet import Fleet


class Metrics(Watcher):
    """Counts what the brain does and shows how the fleet stands."""

    def __init__(self) -> None:
        self._once_done = OnceDone()
        self.registry = CollectorRegistry()
        self._shown_at_s = 0.0
        self._standing = LatestPicture()
        self.registry.register(self._standing)
        r = self.registry
        self.actions = Counter(
            "muster_actions_total", "Actions carried out, by kind and result", ["action", "result"], registry=r
        )
        self.failures = Counter(
            "muster_decider_failures_total",
            "Decisions that failed, by decider and by what they were about",
            ["decider", "kind"],
            registry=r,
        )
        self.source_failures = Counter(
            "muster_source_failures_total",
            "Failures of sources (git, cloud, watches), by kind",
            ["source", "kind"],
            registry=r,
        )
        self.turn_s = Histogram(
            "muster_turn_duration_seconds",
            "Seconds that one pass of all deciders takes",
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
            registry=r,
        )
        self.events = Counter("muster_events_total", "Events taken from the inbox, by kind", ["event"], registry=r)
        self.wait_s = Histogram(
            "muster_admission_wait_seconds",
            "Seconds from the creation of a gang to its admission",
            ["queue"],
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14400, 86400),
            registry=r,
        )
        self.news_dropped = Counter("muster_news_dropped_total", "Events that were not written", registry=r)
        self.notifications = Counter(
            "muster_notifications_total",
            "Attempts to notify a sink, by what came of it",
            ["sink", "outcome"],
            registry=r,
        )
        self.evictions = Counter("muster_evictions_total", "Gangs evicted", ["queue", "reason"], registry=r)
        self.bought = Counter("muster_machines_bought_total", "Machines bought", ["node_pool"], registry=r)
        self.unhealthy = Counter("muster_instance_unhealthy_total", "Failed checks of EC2", ["category"], registry=r)
        self.returned = Counter("muster_machines_returned_total", "Machines given back", ["reason"], registry=r)
        self.shortfalls = Counter(
            "muster_launch_failures_total", "Failures of launches, by what to do about them", ["error"], registry=r
        )
        self._count_from_outside(r)
        self.leading = Gauge("muster_leading", "1 while this process holds the lease", registry=r)
        self.clock_offset = Gauge(
            "muster_clock_offset_seconds", "The API server's time, the agent's, less its machine's", registry=r
        )
        self.revision = Gauge("muster_revision_info", "The revision in force", ["revision", "outcome"], registry=r)

    def _count_from_outside(self, r: CollectorRegistry) -> None:
        self._refused = Counter(
            "muster_http_refused_total",
            "Connections that were refused or cut off, and requests that are no HTTP, by server and reason",
            ["server", "reason"],
            registry=r,
        )
        self._reviews = Counter(
            "muster_pull_request_reviews_total", "Pull requests planned, by what came of it", ["outcome"], registry=r
        )
        self._deliveries = Counter(
            "muster_webhook_deliveries_total", "Deliveries to the webhook", ["sender", "status"], registry=r
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

    def delivered(self, sender: str, status: int) -> None:
        """Count a delivery and its answer."""
        self._deliveries.labels(sender or "unknown", str(status)).inc()

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Look whether a gang is admitted or evicted by what is about to be written."""
        if not isinstance(action, SaveGang):
            return
        gang = action.gang
        before = mirror.gangs.current.get(f"{gang.namespace}/{gang.workload}")
        state = before.state if before else None
        if gang.state is GangState.ADMITTED and state is not GangState.ADMITTED:
            waited_s = max(0.0, now_s - gang.created_at_s)
            self._once_done.keep(action, lambda: self.wait_s.labels(gang.queue).observe(waited_s))
        starts = gang.state is GangState.EVICTING and state is not GangState.EVICTING
        if starts or gang.evictions > (before.evictions if before else 0):  # who waits for machines leaves at once
            reason = gang.eviction.reason if gang.eviction else gang.reason
            self._once_done.keep(action, lambda: self.evictions.labels(gang.queue, reason).inc())

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
        """Show how the fleet stands, at most once a second."""
        if snapshot.now_s - self._shown_at_s >= 1.0:
            self._shown_at_s = snapshot.now_s
            self._standing.show(standing(fleet, snapshot))


class LatestPicture(Collector):
    """Shows what was shown last, whole: a scrape that runs meanwhile sees the old picture or the new one."""

    def __init__(self) -> None:
        self._families: tuple[Metric, ...] = ()

    def show(self, families: Iterable[Metric]) -> None:
        """Take another picture in place of the last one."""
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        """The picture, for whoever scrapes."""
        return self._families

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before the first picture."""
        return ()


def standing(fleet: Fleet, snapshot: Snapshot) -> Iterator[Metric]:
    """How queues, pools and teams stand at one instant."""
    tree = charged_tree(fleet, snapshot, snapshot.gangs.values(), ordinary_usage(fleet, snapshot))
    pools = claims_by_pool(snapshot)
    states = Counts((gang.queue, gang.state) for gang in snapshot.gangs.values())
    yield _gauge("muster_gangs", "Gangs by queue and state", ("queue", "state"), states.items())
    used = (
        ((name, *tree.cells[cell]), amount)
        for name, queue in tree.queues.items()
        for cell, amount in enumerate(queue.usage)
        if amount
    )
    yield _gauge("muster_quota_used", "Quota used, in canonical amounts", ("queue", "flavor", "resource"), used)
    machines = Counts((pool, claim.state) for pool, claims in pools.items() for claim in claims)
    yield _gauge("muster_machines", "Machines by pool and state", ("node_pool", "state"), machines.items())
    bills = (
        ((pool,), sum(claim.charged_usd_h for claim in claims if claim.launched_at_s)) for pool, claims in pools.items()
    )
    yield _gauge("muster_usd_per_hour", "USD an hour that the machines of a pool are charged at", ("node_pool",), bills)
    use = ((queue.split("/", 1), value) for queue, value in usage_order_values(fleet, snapshot).items())
    words = "Recent use of a local queue, decayed and weighted: the least goes first"
    yield _gauge("muster_local_queue_usage", words, ("namespace", "queue"), use)
    spent = (((team,), usd) for team, usd in snapshot.spent_usd.items())
    yield _gauge("muster_spent_usd_month", "USD spent this calendar month (UTC) by team", ("team",), spent)
    words = "Machines of this cluster without a claim; many at once are left alone"
    yield GaugeMetricFamily("muster_orphaned_machines", words, len(orphaned(snapshot)))
    age_s = max(0.0, snapshot.now_s - snapshot.catalog.priced_at_s)
    yield GaugeMetricFamily("muster_prices_age_seconds", "Age of the oldest price in use, in seconds", age_s)


def _gauge(
    name: str, words: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, words, labels=labels)
    for values, value in samples:
        family.add_metric(list(values), value)
    return family
