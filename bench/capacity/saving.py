"""What a pass of the agent pays for the recorded pods, beside what the real Karpenter paid.

`python -m bench.capacity.saving [SET...]` prints a JSON line for each set of problems and each price of a machine. Each
problem goes through `fleet.scheduling.cycle.decide`, as pods of no gang do on a cluster. Every answer is judged by the
recorded facts alone (`faults`).

Karpenter is compared twice: as it comes, and for a user who has each GPU pod select the smallest number of GPUs that
holds it. Beside every saving stand the nodes: Karpenter buys fewer and larger ones where nobody tells it not to.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.capacity import recorded
from bench.capacity.recorded import KarpenterRun, RecordedClass, RecordedKind, RecordedProblem, RecordedSet
from fleet.actions import NominatePods, OpenClaims, PurchaseTally
from fleet.fence import told_apart
from fleet.scheduling import cycle
from fleet.snapshot import Catalog, Claim, PodVerdict
from model.fleet import Fleet
from model.kinds import RequirementTerm
from providers.kube.memory import settle_heap

SEEDS: tuple[int, ...] = ()
"""The problems are recorded."""
USUAL = ("inference-1000", "mixes-1000", "singles-1000", "openb-default")
"""Sets that `make bench` runs; the others take minutes."""
CENT = 1e-6
Line = dict[str, float | int | str | None]


@dataclass(frozen=True, slots=True)
class BoughtForRecorded:
    """What one pass bought for one problem."""

    problem: RecordedProblem
    tally: PurchaseTally
    claims: tuple[Claim, ...]
    cpu_s: float

    @property
    def usd_h(self) -> float:
        """What the machines cost by the prices of their offers."""
        return sum(claim.price_usd_h for claim in self.claims)

    @property
    def above_bound(self) -> float:
        """By what part of the bound the cost is above it: no purchase saves more."""
        return self.usd_h / self.tally.bound_usd_h - 1.0

    @property
    def dearer_than_a_run(self) -> bool:
        """Whether some recorded run of Karpenter, of either sort, paid less."""
        return any(self.usd_h > run.usd_h + CENT for run in self.problem.every_run)

    def saving(self, run: KarpenterRun) -> float:
        """The part of a run's cost that is saved."""
        return 1.0 - self.usd_h / run.usd_h


def buy(known: RecordedSet, problem: RecordedProblem, fleet: Fleet, catalog: Catalog) -> BoughtForRecorded:
    """One pass on an empty cluster. Raises `RuntimeError` where what it decides is not legal."""
    seen = recorded.snapshot(problem, catalog)
    began_s = time.process_time()
    actions = cycle.decide(fleet, seen)
    decided, failed = told_apart(actions)
    cpu_s = time.process_time() - began_s
    opened = [it for it in decided if isinstance(it, OpenClaims)]
    claims = tuple(claim for it in opened for claim in it.claims)
    verdicts = {uid: found for it in decided if isinstance(it, NominatePods) for uid, found in it.verdicts.items()}
    asked = {pod.uid: pod.name.rpartition("-")[0] for pod in seen.waiting_pods.values()}
    where = {uid: verdicts.get(uid, PodVerdict(reason="unknown")) for uid in asked}
    wrong = [*map(str, failed), *faults(known, problem, claims, {uid: it.claim for uid, it in where.items()}, asked)]
    if wrong:
        raise RuntimeError(f"problem {problem.name}: {'; '.join(wrong[:3])}")
    [tally] = (it.tally for it in opened if it.tally is not None)
    return BoughtForRecorded(problem, tally, claims, cpu_s)


# -- the judge --------------------------------------------------------------------------------------------------------


def faults(
    known: RecordedSet,
    problem: RecordedProblem,
    claims: Sequence[Claim],
    where: dict[str, str],
    asked: dict[str, str],
) -> Iterator[str]:
    """What is wrong with a purchase. `where`: pod -> claim, `asked`: pod -> its class."""
    classes = {it.name: it for it in problem.classes}
    if Counter(asked.values()) != Counter({it.name: it.count for it in problem.classes}):
        yield "the pods are not those of the problem"
    there = {claim.name: claim for claim in claims}
    if len(there) != len(claims):
        yield "two machines have one name"
    on: dict[str, Counter[str]] = {name: Counter() for name in there}
    for uid, claim in where.items():
        if claim not in there:
            yield f"pod {uid} has no machine"
        else:
            on[claim][asked[uid]] += 1
    for name, pods in sorted(on.items()):
        yield from _machine_faults(known, there[name], [(classes[it], count) for it, count in sorted(pods.items())])


def _machine_faults(known: RecordedSet, claim: Claim, pods: Iterable[tuple[RecordedClass, int]]) -> Iterator[str]:
    pool = claim.capacity_pool
    kind, pods = known.kinds.get(pool.instance_type), list(pods)
    if kind is None or pool.zone not in known.zones or pool.capacity_type != "on-demand":
        yield f"{claim.name}: {pool} is not sold"
        return
    if claim.price_usd_h != kind.usd_h or claim.node_pool != kind.pool:
        yield f"{claim.name}: {kind.name} at {claim.price_usd_h} of pool {claim.node_pool}"
    if not pods:
        yield f"{claim.name}: {kind.name} is for nobody"
    used = Counter[str]()
    for each, count in pods:
        used.update({name: amount * count for name, amount in each.requests.items()} | {"pods": count})
        if known.tainted[kind.pool] and not each.tolerant:
            yield f"{claim.name}: {each.name} does not tolerate pool {kind.pool}"
        yield from (
            f"{claim.name}: {each.name} does not want {kind.name}" for it in each.affinity if not _meets(kind, it)
        )
    for name, amount in sorted(used.items()):
        if amount > kind.allocatable.get(name, 0):
            yield f"{claim.name}: {amount} of {name} on {kind.name}"


def _meets(kind: RecordedKind, term: RequirementTerm) -> bool:
    """Kubernetes' node affinity, as far as the facts use it."""
    value = kind.labels.get(term.key)
    match term.operator:
        case "In":
            return value in term.values
        case "NotIn":
            return value not in term.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(f"operator {term.operator}")


# -- numbers ----------------------------------------------------------------------------------------------------------


def measured(known: RecordedSet, machine_usd_h: float | None = None, most: int | None = None) -> Line:
    """One line over the first `most` problems of a set: medians, with the least and the most saving."""
    fleet, catalog = known.fleet(machine_usd_h), known.catalog()
    settle_heap()  # as the agent does once it has read its cluster
    found = [buy(known, problem, fleet, catalog) for problem in known.problems[:most]]
    pinned = [it for it in found if it.problem.pinned() is not None]
    return {
        "problems": len(found),
        "pods": sum(it.count for it in found[0].problem.classes),
        **_against("as_it_comes", found, lambda problem: problem.as_it_comes()),
        "pinned_problems": len(pinned),
        **(_against("pinned", pinned, lambda problem: problem.pinned()) if pinned else {}),
        "nodes": round(statistics.median(len(it.claims) for it in found)),
        "usd_h": round(statistics.fmean(it.usd_h for it in found), 2),
        "dearer_than_a_run": sum(it.dearer_than_a_run for it in found),
        "above_bound_pct": _percent(statistics.median(it.above_bound for it in found)),
        "most_above_bound_pct": _percent(max(it.above_bound for it in found)),
        "cpu_s": round(statistics.median(it.cpu_s for it in found), 2),
    }


def _against(
    name: str, found: Sequence[BoughtForRecorded], run: Callable[[RecordedProblem], KarpenterRun | None]
) -> Line:
    pairs = [(it, theirs) for it in found if (theirs := run(it.problem)) is not None]
    savings = [it.saving(theirs) for it, theirs in pairs]
    return {
        f"{name}_saving_pct": _percent(statistics.median(savings)),
        f"{name}_least_pct": _percent(min(savings)),
        f"{name}_most_pct": _percent(max(savings)),
        f"{name}_nodes": round(statistics.median(theirs.nodes for _, theirs in pairs)),
    }


def _percent(part: float) -> float:
    return round(100 * part, 2)


def run() -> dict[str, float]:
    """Savings over what Karpenter paid, nodes and bound, of the usual sets; nothing where the facts are not there."""
    found: dict[str, float] = {}
    for name in filter(recorded.available, USUAL):
        line = measured(recorded.recorded(name))
        short = name.replace("-", "_")
        found |= {f"{short}_{key}": float(line[key] or 0) for key in _SHOWN if key in line}
    return found


_SHOWN = (
    "as_it_comes_saving_pct", "as_it_comes_nodes", "pinned_saving_pct", "pinned_nodes",
    "nodes", "dearer_than_a_run", "above_bound_pct", "cpu_s",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 2 where the recorded facts are not there."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.saving", description=__doc__)
    parser.add_argument("sets", nargs="*", help=f"of {', '.join(recorded.SETS)}; default: all")
    parser.add_argument("--problems", type=int, metavar="N", help="of each set the first so many; default: all")
    parser.add_argument(
        "--machine-usd-h", type=float, nargs="*", metavar="USD", help="usdPerHourPerMachine; default: the default"
    )
    chosen = parser.parse_args(arguments)
    for name in chosen.sets or recorded.SETS:
        if not recorded.available(name):
            print(f"{name}: not in {recorded.FOLDER} (MUSTER_SHARED)", file=sys.stderr)
            return 2
        known = recorded.recorded(name)
        for machine_usd_h in chosen.machine_usd_h or (None,):
            about: Line = {"set": name, "machine_usd_h": machine_usd_h}
            print(json.dumps(about | measured(known, machine_usd_h, chosen.problems)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
