"""How much of a GPU cluster is allocated once it is full: `python -m bench.openb POD_CSV...`, the node list beside.

Prints a line for each run and at last one for each list: `NAME allocated PCT fragmented PCT seconds S`, means of the
runs with seeds 42, 43, ... and the seconds they took together on the clock. Every run is the same on every machine.

`--engine production` places the pods by what the deciders use (`bench.production`), without those that share a GPU;
`tightest` is the rule they had before. With `--replicas 2,3,4,6` pods that share a GPU take part: pools offer their
GPUs so many times, and each pod asks for one replica that is no less than its share. What is allocated is what pods
ask for; `held` is what they hold by that rounding. Before that come two lines on FGD with the same pods: as it is
published, dividing devices exactly, and with the shares rounded up as here. For the other engine `--replicas` rounds
the shares, whatever the policy.

`--whole` leaves out pods that share a GPU for the other engine as well, `--cpu-pods 2.5` repeats those without GPUs
until there are so many times as many.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bench import production
from bench.packing import Choice, NoTrace, PackingOutcome, Trace, fill, read, rounded
from bench.published import BestFit, Fgd, RepeatedFit
from bench.reference.fragmentation import ExpectedFill, Measure, Request
from bench.reference.packer import UNFIT, FreeNode, PackedPlace, Packer, models

FIRST_SEED = 42
OURS = "expected-fill"
PACKER, PRODUCTION = "packer", "production"
MOST_REPLICAS = 48
"""As often as a NodePool may offer a GPU."""


@dataclass(frozen=True, slots=True)
class _Policy:
    measure: Callable[[Trace], Measure]
    choice: Callable[[int], Choice]
    """Made from the seed of the run."""


def _made(kind: Callable[..., Measure]) -> Callable[[Trace], Measure]:
    return lambda trace: kind(trace.mix, models(trace.nodes))


def _best(_: int) -> Choice:
    return Packer.choose


def _any(seed: int) -> Choice:
    return partial(_drawn, random.Random(seed))


def _drawn(draw: random.Random, packer: Packer, request: Request) -> PackedPlace | None:
    """Any node it fits on and, for a part of a GPU, any device there."""
    fitting = np.flatnonzero(packer.ranks(request) != UNFIT)
    if not len(fitting):
        return None
    index = int(fitting[draw.randrange(len(fitting))])
    if not request.shared:
        return packer.place(request, index)
    free = packer.machine(index).devices
    return PackedPlace(
        packer.names[index], (draw.choice([at for at, it in enumerate(free) if it >= request.gpu_milli]),)
    )


POLICIES: dict[str, _Policy] = {
    OURS: _Policy(_made(ExpectedFill), _best),
    "repeated-fit": _Policy(_made(RepeatedFit), _best),
    "fgd": _Policy(_made(Fgd), _best),
    "best-fit": _Policy(_made(BestFit), _best),
    "random": _Policy(_made(BestFit), _any),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 2 where the files are no trace."""
    parser = argparse.ArgumentParser(prog="python -m bench.openb", description=__doc__)
    parser.add_argument("pod_lists", nargs="+", type=Path, metavar="POD_CSV")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="runs of each list (default: 10)")
    parser.add_argument("--engine", choices=ENGINES, default=PACKER, help=f"default: {PACKER}")
    known = dict.fromkeys(policy for policies in ENGINES.values() for policy in policies)
    parser.add_argument("--policy", choices=known, default=OURS, help=f"default: {OURS}")
    parser.add_argument("--replicas", type=_offered, default=(), metavar="N,N...", help="how often pools offer a GPU")
    parser.add_argument("--whole", action="store_true", help="without the pods that share a GPU")
    parser.add_argument("--cpu-pods", type=float, default=1.0, metavar="X", help="times the pods without GPUs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="default: all cores")
    chosen = parser.parse_args(arguments)
    if min(chosen.seeds, chosen.workers) < 1:
        parser.error("--seeds and --workers are at least 1")
    if chosen.policy not in ENGINES[chosen.engine]:
        parser.error(f"--engine {chosen.engine} has --policy {', '.join(ENGINES[chosen.engine])}")
    try:
        traces = [read(path) for path in chosen.pod_lists]
    except (NoTrace, OSError) as error:
        parser.error(str(error))
    if chosen.whole or (chosen.engine == PRODUCTION and not chosen.replicas):
        traces = [production.whole(trace) for trace in traces]
    traces = [with_cpu_pods(trace, chosen.cpu_pods) for trace in traces]
    ways = _ways(chosen)
    closing = [
        _closing(replace(trace, name=trace.name + suffix), run_one, chosen.seeds, chosen.workers)
        for trace in traces
        for suffix, run_one in ways.items()
    ]
    print("\n".join(closing))
    return 0


def _ways(chosen: argparse.Namespace) -> dict[str, "Run"]:
    """How lists are run, by what is added to their names: the one that is asked for at last."""
    way: Run = partial(ENGINES[chosen.engine][chosen.policy], chosen.policy, offered=chosen.replicas)
    if not (chosen.engine == PRODUCTION and chosen.replicas):
        return {"": way}
    rounded_alike: Run = partial(_packed, "fgd", offered=chosen.replicas)
    return {" fgd (exact shares)": partial(_packed, "fgd"), " fgd (shares rounded up)": rounded_alike, "": way}


def _offered(text: str) -> tuple[int, ...]:
    """Numbers of replicas, as many as a NodePool may offer; ValueError where they are not."""
    offered = tuple(int(part) for part in text.split(","))
    if not all(MOST_REPLICAS >= times > 1 for times in offered):
        raise ValueError(text)
    return offered


def with_cpu_pods(trace: Trace, times: float) -> Trace:
    """The trace with so many times as many pods without GPUs, which are repeated in their order."""
    if times == 1:
        return trace
    plain = [pod for pod in trace.pods if not pod.gpus]
    repeated = tuple(plain[n % len(plain)] for n in range(int(len(plain) * times)))
    pods = (*(pod for pod in trace.pods if pod.gpus), *repeated)
    return replace(trace, name=f"{trace.name}-cpu{100 * times:.0f}", pods=pods)


def _closing(trace: Trace, run_one: "Run", seeds: int, workers: int) -> str:
    """Run a list with every seed; the line that sums it up."""
    began_s = time.perf_counter()
    outcomes = []
    for outcome in _outcomes(trace, run_one, range(FIRST_SEED, FIRST_SEED + seeds), workers):
        print(_line(trace, outcome), flush=True)
        outcomes.append(outcome)
    allocated_pct = statistics.fmean(it.allocated_pct for it in outcomes)
    fragmented_pct = statistics.fmean(it.fragmented_pct for it in outcomes)
    held_pct = statistics.fmean(it.held_pct for it in outcomes)
    held = f" held {held_pct:.2f}" if held_pct != allocated_pct else ""
    seconds = time.perf_counter() - began_s
    return f"{trace.name} allocated {allocated_pct:.2f} fragmented {fragmented_pct:.2f} seconds {seconds:.1f}{held}"


def _line(trace: Trace, it: PackingOutcome) -> str:
    return (
        f"{trace.name} seed {it.seed}: {it.placed} of {it.pods} pods, "
        f"allocated {it.allocated_pct:.2f} fragmented {it.fragmented_pct:.2f} seconds {it.seconds:.2f} "
        f"({1e6 * it.seconds / it.pods:.0f} us a pod, {1e3 * it.slowest_s:.1f} ms at most)"
    )


def _outcomes(trace: Trace, run_one: "Run", seeds: Sequence[int], workers: int) -> Iterator[PackingOutcome]:
    """In the order of the seeds."""
    one = partial(run_one, trace)
    if min(workers, len(seeds)) == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(min(workers, len(seeds))) as pool:
        yield from pool.map(one, seeds)


def _packed(policy: str, trace: Trace, seed: int, offered: Sequence[int] = ()) -> PackingOutcome:
    way, known = POLICIES[policy], replace(trace, pods=tuple(rounded(pod, offered) for pod in trace.pods))
    return fill(trace, way.measure(known), way.choice(seed), Fgd(trace.mix, models(trace.nodes)), seed, offered)


def _produced(policy: str, trace: Trace, seed: int, offered: Sequence[int] = ()) -> PackingOutcome:
    return production.fill(trace, production.RULES[policy], Fgd(trace.mix, models(trace.nodes)), seed, offered)


Run = Callable[[Trace, int], PackingOutcome]
"""One run of a trace with a seed."""
ENGINES: dict[str, dict[str, Callable[..., PackingOutcome]]] = {
    PACKER: dict.fromkeys(POLICIES, _packed),
    PRODUCTION: dict.fromkeys(production.RULES, _produced),
}
"""Engine -> its policies and what runs them."""


def synthetic(nodes: int = 600) -> Trace:
    """A cluster and a workload of no one in particular: shared, whole and several GPUs, and some without."""
    machines = tuple(
        FreeNode(f"node-{n:05}", 96_000, 393_216, (1000,) * 8, "a")
        if n % 2
        else FreeNode(f"node-{n:05}", 104_000, 524_288, (1000,) * 2, "b")
        for n in range(nodes)
    )
    asked = {
        Request(3_000, 8_192, 1, 800): 13,
        Request(12_000, 40_960, 1, 500): 13,
        Request(8_000, 32_768, 1, 300): 9,
        Request(4_000, 16_384, 1, 150): 3,
        Request(11_500, 49_152, 1): 40,
        Request(24_000, 98_304, 2): 3,
        Request(90_000, 327_680, 8, models=("a",)): 1,
        Request(12_500, 57_344): 18,
    }
    pods = tuple(request for request, count in asked.items() for _ in range(count * nodes // 15))
    return Trace("synthetic", machines, pods)


def run() -> dict[str, float]:
    """A synthetic cluster of 600 nodes filled once: microseconds a decision with its pod's placement, and how full."""
    trace = synthetic()
    outcome = _packed(OURS, trace, FIRST_SEED)
    return {
        "decision_us": 1e6 * outcome.seconds / outcome.pods,
        "slowest_decision_ms": 1e3 * outcome.slowest_s,
        "allocated_pct": outcome.allocated_pct,
    }


if __name__ == "__main__":
    sys.exit(main())
