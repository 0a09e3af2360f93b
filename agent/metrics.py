"""Prometheus metrics: a registry of our own, and never a label per pod, job or machine."""

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.watch import Watcher
from fleet.actions import Action, LaunchMachines, SaveGang, TerminateMachines
from fleet.nodeclaims.orphans import orphaned
from fleet.quota.compile import charged_tree
from fleet.quota.usage import usage_order_values
from fleet.snapshot import GangState, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.fleet import Fleet


class Metrics(Watcher):
    """Counts what the brain does and shows how the fleet stands."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shown_at_s = 0.0
        r = self.registry
        self.actions = Counter("muster_actions_total", "Actions by kind and result", ["action", "result"], registry=r)
        self.failures = Counter("muster_decider_failures_total", "Deciders that failed", ["decider"], registry=r)
        self.turn_s = Histogram(
            "muster_turn_duration_seconds",
            "One pass of all deciders",
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
            registry=r,
        )
        self.events = Counter("muster_events_total", "Events heard by kind", ["event"], registry=r)
        self.gangs = Gauge("muster_gangs", "Gangs by queue and state", ["queue", "state"], registry=r)
        self.wait_s = Histogram(
            "muster_admission_wait_seconds",
            "From creation to admission",
            ["queue"],
            buckets=(1, 5, 15, 60, 300, 900, 3600, 14400, 86400),
            registry=r,
        )
        self.news_dropped = Counter("muster_news_dropped_total", "Events and notifications given up", registry=r)
        self.evictions = Counter("muster_evictions_total", "Gangs evicted", ["queue", "reason"], registry=r)
        self.machines = Gauge("muster_machines", "Machines by pool and state", ["node_pool", "state"], registry=r)
        self.usd_h = Gauge("muster_usd_per_hour", "What a pool costs now", ["node_pool"], registry=r)
        self.bought = Counter("muster_machines_bought_total", "Machines bought", ["node_pool"], registry=r)
        self.unhealthy = Counter("muster_instance_unhealthy_total", "Failed checks of EC2", ["category"], registry=r)
        self.returned = Counter("muster_machines_returned_total", "Machines given back", ["reason"], registry=r)
        self.shortfalls = Counter("muster_launch_failures_total", "Launches by error", ["error"], registry=r)
        self.quota_used = Gauge(
            "muster_quota_used", "Used of a flavor by queue", ["queue", "flavor", "resource"], registry=r
        )
        self.local_usage = Gauge(
            "muster_local_queue_usage",
            "What orders local queues: used lately, decayed and weighted",
            ["namespace", "queue"],
            registry=r,
        )
        self.spent = Gauge("muster_spent_usd_month", "Spent this calendar month by team", ["team"], registry=r)
        self.leading = Gauge("muster_leading", "1 while this process holds the lease", registry=r)
        self.revision = Gauge("muster_revision_info", "The revision in force", ["revision", "outcome"], registry=r)
        self.orphans = Gauge(
            "muster_orphaned_machines",
            "Machines of this cluster without a claim; many at once are left alone",
            registry=r,
        )
        self.prices_age_s = Gauge("muster_prices_age_seconds", "Age of the oldest price in use", registry=r)

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Count admissions and evictions as they are decided."""
        if not isinstance(action, SaveGang):
            return
        gang = action.gang
        before = mirror.gangs.current.get(f"{gang.namespace}/{gang.workload}")
        state = before.state if before else None
        if gang.state is GangState.ADMITTED and state is not GangState.ADMITTED:
            self.wait_s.labels(gang.queue).observe(max(0.0, now_s - gang.created_at_s))
        if gang.state is GangState.EVICTING and state is not GangState.EVICTING:
            self.evictions.labels(gang.queue, gang.reason).inc()

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Count actions and what launches brought."""
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

    def stumbled(self, decider: str) -> None:
        """Count failures of deciders: each is a defect worth an alert."""
        self.failures.labels(decider).inc()

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Show how the fleet stands, at most once a second."""
        if snapshot.now_s - self._shown_at_s < 1.0:
            return
        self._shown_at_s = snapshot.now_s
        tree = charged_tree(fleet, snapshot, snapshot.gangs.values())
        for gauge in (self.gangs, self.machines, self.usd_h, self.quota_used, self.local_usage, self.spent):
            gauge.clear()
        for gang in snapshot.gangs.values():
            self.gangs.labels(gang.queue, gang.state).inc()
        for name, queue in tree.queues.items():
            for cell, amount in enumerate(queue.usage):
                if amount:
                    self.quota_used.labels(name, *tree.cells[cell]).set(amount)
        for pool, claims in claims_by_pool(snapshot).items():
            for state, count in Counts(claim.state for claim in claims).items():
                self.machines.labels(pool, state).set(count)
            self.usd_h.labels(pool).set(sum(claim.charged_usd_h for claim in claims if claim.launched_at_s))
        for local_queue, value in usage_order_values(fleet, snapshot).items():
            self.local_usage.labels(*local_queue.split("/", 1)).set(value)
        for team, usd in snapshot.spent_usd.items():
            self.spent.labels(team).set(usd)
        self.orphans.set(len(orphaned(snapshot)))
        self.prices_age_s.set(max(0.0, snapshot.now_s - snapshot.catalog.priced_at_s))
