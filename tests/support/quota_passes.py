"""Pass after pass of the agent, as far as quota goes: each pass is a new scheduler on what is held and what waits, and
one sweep; victims take their time to leave."""

from dataclasses import dataclass, field, replace

from fleet.quota.entries import EntryOutcome
from fleet.quota.specs import AdmissionRules
from fleet.reasons import Reason
from tests.support.quota_worlds import QuotaPlan
from tests.support.quotas import QuotaWorld, Turn

AGENT = AdmissionRules(preemptors_first=True, wait_for_leaving=True, every_flavor=True, count_declared_only=True)
"""What the agent decides by, but for the strategies of fair sharing."""


@dataclass(slots=True)
class Passes:
    """`leave_passes`: so many passes a victim still holds its quota."""

    plan: QuotaPlan
    leave_passes: int = 1
    held: dict[str, tuple[dict[str, int], float]] = field(default_factory=dict)
    """Workload -> cells with amounts, and when it got them."""
    leaving: dict[str, int] = field(default_factory=dict)
    """Victim -> passes it still takes."""
    nominated: set[str] = field(default_factory=set)
    now_s: float = 1000.0

    @classmethod
    def of(cls, plan: QuotaPlan, leave_passes: int = 1) -> "Passes":
        world = plan.build()
        held = {
            name: ({"/".join(world.tree.cells[cell]): n for cell, n in holder.usage.items()}, holder.reserved_at_s)
            for name, holder in world.ledger.holders.items()
        }
        rules = replace(AGENT, fair=plan.rules.fair)
        return cls(replace(plan, rules=rules), leave_passes, held)

    def world(self) -> QuotaWorld:
        """What the next pass starts from."""
        world = QuotaWorld.of(*self.plan.cohorts, *self.plan.queues, rules=self.plan.rules)
        for job in self.plan.jobs:
            more = {"priority": job.priority, "at_s": job.at_s}
            if job.name in self.held:
                cells, reserved_at_s = self.held[job.name]
                leaving = job.name in self.leaving
                world.holds(job.name, job.queue, cells, reserved_at_s=reserved_at_s, leaving=leaving, **more)
            else:
                world.waits(job.name, job.queue, dict(job.wanted), nominated=job.name in self.nominated, **more)
        return world

    def turn(self) -> Turn:
        """One pass. `evicted` are those that were not leaving before."""
        world = self.world()
        self.now_s += 1
        result = world.scheduler.sweep()
        for name in [name for name, left in self.leaving.items() if left <= 1]:
            del self.leaving[name], self.held[name]
        self.leaving = {name: left - 1 for name, left in self.leaving.items()}
        for holder in result.admitted:
            cells = {"/".join(world.tree.cells[cell]): amount for cell, amount in holder.usage.items()}
            self.held[holder.workload.name] = (cells, self.now_s)
            self.nominated.discard(holder.workload.name)
        evicted: dict[str, Reason] = {}
        for victim, _ in result.evictions:
            name = victim.holder.workload.name
            if name not in self.leaving and name in self.held:
                evicted[name] = victim.reason
                self.leaving[name] = self.leave_passes
        self.nominated = {e.workload.name for e in result.waiting if e.outcome is EntryOutcome.PENDING_PREEMPTION}
        return replace(Turn.of(result), evicted=evicted)

    def until_quiet(self, most: int) -> list[Turn]:
        """Passes until two in a row decide nothing and nobody leaves. AssertionError when `most` were not enough."""
        turns: list[Turn] = []
        idle = 0
        while idle < 2:
            assert len(turns) < most, f"still moving: {turns[-6:]}"
            turns.append(self.turn())
            idle = 0 if turns[-1].admitted or turns[-1].evicted or self.leaving else idle + 1
        return turns
