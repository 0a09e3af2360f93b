"""`muster replay` at the size it is meant for: 14 days of 20,000 gangs on 1,000 machines, CPU seconds of one fleet.

The first half day is played and counted 28 times: the load is the same all along, and all of it takes minutes. What is
loaded when it is first asked for is paid once, by a quarter of an hour that is played before.
`python -m bench.replay DAYS` plays more of it (14 = all).
"""

import random
import sys
import time

from agent.cli.replay import ReplayCase, play_case
from fleet.replay.outcome import ReplayOutcome
from fleet.replay.submissions import PodShape, SubmittedGang
from fleet.replay.variants import Variant
from fleet.replay.virtual_run import ReplayWindow
from model import labels

DAYS, GANGS, MACHINES = 14.0, 20_000, 1_000
_FIRST_DAYS = 0.01
_BEGIN_S = 1_704_067_200.0
_DAY_S = 86_400.0
FLEET = f"""
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: h100}}
spec:
  instanceTypes: [p5.48xlarge]
  zones: [us-east-1a, us-east-1b]
  capacityTypes: [on-demand]
  limits: {{nodes: {MACHINES}}}
  disruption: {{consolidationPolicy: WhenEmpty, consolidateAfter: 10m, budgets: [{{nodes: "100%"}}]}}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {{name: t}}
spec:
  namespaces: [t]
  quotas: {{h100: {{guaranteed: {{nvidia.com/gpu: {8 * MACHINES}}}}}}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {{name: t}}
spec: {{team: t, flavors: [h100]}}
"""


def work(days: float, load: float = 1.0) -> list[SubmittedGang]:
    """The gangs that come within so many days: 1 to 16 machines for three hours in the mean, nine tenths of a fleet."""
    rng = random.Random(1)
    count = round(GANGS * load * days / DAYS)
    return sorted((_gang(rng, number, days) for number in range(count)), key=lambda it: it.submitted_s)


def _gang(rng: random.Random, number: int, days: float) -> SubmittedGang:
    shape = PodShape(rng.choice([1, 1, 2, 4, 4, 8, 16]), {labels.GPU_RESOURCE: 8})
    at_s, run_s = _BEGIN_S + rng.random() * days * _DAY_S, rng.expovariate(1 / (3 * 3600))
    return SubmittedGang(f"g{number:05d}", "t", "t", at_s, run_s, (shape,))


def run(days: float = 0.5) -> dict[str, float]:
    """CPU seconds for all 14 days, and what came of the part that was played."""
    loading_s, _ = _played(_FIRST_DAYS)
    taken_s, outcome = _played(days)
    if outcome.undecided or not outcome.total.started:
        raise RuntimeError(f"the replay should have decided about everybody: {outcome.undecided[:3]}")
    return {
        "played_days": days,
        "cpu_s": taken_s,
        "cpu_14_days_s": loading_s + taken_s * DAYS / days,
        "cpu_per_gang_ms": 1000 * taken_s / outcome.total.gangs,
        "gangs": outcome.total.gangs,
        "machines": outcome.machines,
        "wait_p95_s": outcome.total.wait_p95_s,
        "utilisation_pct": 100 * outcome.utilisation,
    }


def _played(days: float) -> tuple[float, ReplayOutcome]:
    """CPU seconds of a replay of so many days, and what came of it."""
    window = ReplayWindow(_BEGIN_S, _BEGIN_S + days * _DAY_S)
    case = ReplayCase("bench", {"fleet.yaml": FLEET.encode()}, work(days), window, "us-east-1", Variant())
    began_s = time.process_time()
    outcome = play_case(case)
    return time.process_time() - began_s, outcome


if __name__ == "__main__":
    for label, value in run(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5).items():
        print(f"{label:20} {value:12,.1f}")
