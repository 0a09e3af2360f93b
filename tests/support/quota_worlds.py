"""Random worlds for the quota engine: small trees in which quota is short, so that many heads must take from others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from fleet.quota.specs import (
    UNLIMITED,
    AdmissionRules,
    CandidatePolicy,
    FungibilityPolicy,
    PreemptionStrategy,
    QueueFungibility,
    QueuePreemption,
    QuotaCohortSpec,
    QuotaQueueSpec,
)
from fleet.quota.tree import QuotaNode, fits
from tests.support.quotas import BOTH, Bound, QuotaWorld, cohort, queue

SHAPES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("root", ""),),
    (("root", ""), ("left", "root")),
    (("root", ""), ("left", "root"), ("right", "root")),
)
"""(cohort, its parent): trees of two or three levels with their queues."""
STRATEGIES: tuple[tuple[PreemptionStrategy, ...], ...] = ((), (), BOTH, BOTH, BOTH[:1], BOTH[1:])


@dataclass(frozen=True, slots=True)
class QuotaJob:
    """A workload, and what it holds in the beginning."""

    name: str
    queue: str
    wanted: tuple[tuple[str, int], ...]
    priority: int
    at_s: float
    flavor: str = ""
    """Holds it of this flavor; empty = waits."""


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """A world that can be built over and over, in any order."""

    cohorts: tuple[QuotaCohortSpec, ...]
    queues: tuple[QuotaQueueSpec, ...]
    jobs: tuple[QuotaJob, ...]
    rules: AdmissionRules

    def build(self) -> QuotaWorld:
        """Those that should hold something and do not fit wait instead."""
        world = QuotaWorld.of(*self.cohorts, *self.queues, rules=self.rules)
        for job in sorted(self.jobs, key=lambda job: job.name):
            held = {f"{job.flavor}/{resource}": amount for resource, amount in job.wanted}
            if job.flavor and fits(world.tree.queues[job.queue], world.cells(held)):
                world.holds(job.name, job.queue, held, priority=job.priority, at_s=job.at_s, reserved_at_s=job.at_s)
        for job in self.jobs:
            if job.name not in world.ledger.holders:
                world.waits(job.name, job.queue, dict(job.wanted), priority=job.priority, at_s=job.at_s)
        return world

    def permuted(self, cohorts: Sequence[int], queues: Sequence[int], jobs: Sequence[int]) -> "QuotaPlan":
        """The same in another order."""
        return replace(
            self,
            cohorts=tuple(self.cohorts[index] for index in cohorts),
            queues=tuple(self.queues[index] for index in queues),
            jobs=tuple(self.jobs[index] for index in jobs),
        )

    def renamed(self, suffix: str) -> "QuotaPlan":
        """The same with other names, to stand beside it."""
        return replace(
            self,
            cohorts=tuple(
                replace(c, name=c.name + suffix, parent=c.parent and c.parent + suffix) for c in self.cohorts
            ),
            queues=tuple(replace(q, name=q.name + suffix, cohort=q.cohort and q.cohort + suffix) for q in self.queues),
            jobs=tuple(replace(j, name=j.name + suffix, queue=j.queue + suffix) for j in self.jobs),
        )

    def beside(self, other: "QuotaPlan") -> "QuotaPlan":
        """Both in one world."""
        return replace(
            self,
            cohorts=other.cohorts + self.cohorts,
            queues=other.queues + self.queues,
            jobs=other.jobs + self.jobs,
        )


limits = st.sampled_from((None,) * 7 + (0, 1, 2))
weights = st.sampled_from((1.0, 1.0, 1.0, 0.5, 2.0, 0.0))
preemptions = st.builds(
    QueuePreemption,
    st.sampled_from((CandidatePolicy.LOWER, CandidatePolicy.LOWER_OR_NEWER, CandidatePolicy.NEVER)),
    st.sampled_from(
        (CandidatePolicy.ANY, CandidatePolicy.ANY, CandidatePolicy.ANY, CandidatePolicy.LOWER, CandidatePolicy.NEVER)
    ),
    st.sampled_from((CandidatePolicy.LOWER, CandidatePolicy.LOWER, CandidatePolicy.NEVER)),
    st.sampled_from((None, None, None, 1)),
)
candidates = st.sampled_from(FungibilityPolicy)
fungibilities = st.one_of(
    st.builds(QueueFungibility, candidates, candidates),
    st.just(QueueFungibility(FungibilityPolicy.NEXT, FungibilityPolicy.NEXT, prefer_preemption=True)),
)


@st.composite
def bounds(draw: st.DrawFn, most: int) -> Bound:
    """A quota of at most `most`, with limits now and then."""
    return draw(st.integers(0, most)), draw(limits), draw(limits)


@st.composite
def plans(
    draw: st.DrawFn,
    strategies: Sequence[tuple[PreemptionStrategy, ...]] = STRATEGIES,
    resources: Sequence[tuple[str, ...]] = (("cpu",), ("cpu",), ("cpu", "gpu")),
    amounts: Sequence[int] = (1, 2, 2, 3, 4),
) -> QuotaPlan:
    """Two to four queues in a tree, one or two flavors and resources, four to nine workloads."""
    shape = draw(st.sampled_from(SHAPES))
    flavors = draw(st.sampled_from((("f",), ("f",), ("f", "g"))))
    covered = draw(st.sampled_from(resources))
    cells = [f"{flavor}/{resource}" for flavor in flavors for resource in covered]
    cohorts = tuple(
        cohort(name, parent, {cell: draw(bounds(2)) for cell in cells}, draw(weights)) for name, parent in shape
    )
    queues = tuple(
        queue(
            f"q{index}",
            draw(st.sampled_from([name for name, _ in shape])),
            {cell: draw(bounds(3)) for cell in cells},
            weight=draw(weights),
            strict=draw(st.integers(0, 4)) == 0,
            preemption=draw(preemptions),
            fungibility=draw(fungibilities),
        )
        for index in range(draw(st.integers(2, 4)))
    )
    jobs = tuple(
        QuotaJob(
            f"w{index}",
            draw(st.sampled_from(queues)).name,
            tuple((resource, draw(st.sampled_from(amounts))) for resource in covered),
            draw(st.sampled_from((0, 0, 1, 2))),
            float(draw(st.integers(0, 3))),
            draw(st.sampled_from((*flavors, *flavors, ""))),
        )
        for index in range(draw(st.integers(4, 9)))
    )
    return QuotaPlan(cohorts, queues, jobs, AdmissionRules(fair=draw(st.sampled_from(strategies))))


def over(world: QuotaWorld) -> set[tuple[str, int]]:
    """(node, cell) above what the tree allows: a root above its quota, any other above its borrowing limit."""
    nodes: list[QuotaNode] = [*world.tree.cohorts.values(), *world.tree.queues.values()]
    found = set()
    for node in nodes:
        for cell in range(len(world.tree.cells)):
            if node.parent is None:
                above = node.usage[cell] > node.subtree[cell]
            else:
                ceiling = node.ceiling[cell]
                above = ceiling < UNLIMITED and max(0, node.usage[cell] - node.private[cell]) > ceiling
            if above:
                found.add((node.name, cell))
    return found
