"""A stream whose mix changes: idle machines cut by what all gangs ask for, or by the first in line."""

import random

import pytest

from agent.clouds import cloud_provider
from fleet.placement.opportunity_cost import OpportunityCosts
from fleet.replay.outcome import wait_s
from fleet.replay.submissions import PodShape, SubmittedGang
from fleet.replay.virtual_run import ReplayWindow, played
from model.fleet import Fleet
from model.loader import load

BEGIN_S, GANGS = 1_700_000_000.0, 150
CUTS = {
    "large": "[{profiles: {3g.40gb: 2}}]",
    "small": "[{profiles: {1g.10gb: 7}}]",
    "middle": "[{profiles: {2g.20gb: 3}}]",
    "mixed": "[{profiles: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}}]",
}
LAYOUTS = "---\n".join(
    f"apiVersion: muster.dev/v1alpha1\nkind: MigLayout\nmetadata: {{name: {name}}}\n"
    f"spec: {{models: {{a100-80gb: {cut}}}}}\n"
    for name, cut in CUTS.items()
)
POOL = """---
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: slices}
spec:
  instanceTypes: [p4de.24xlarge]
  zones: [us-east-1a, us-east-1b]
  replicas: 3
  sharing: {mig: {layouts: [large, small, middle, mixed]}}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {name: ml}
spec:
  namespaces: [ml]
  quotas:
    slices:
      guaranteed: {nvidia.com/mig-1g.10gb: 999, nvidia.com/mig-2g.20gb: 999, nvidia.com/mig-3g.40gb: 999}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: ml}
spec: {team: ml, flavors: [slices]}
"""


def stream(seed: int) -> list[SubmittedGang]:
    """Small slices for four hours, large ones for four, and so on."""
    draw, at_s, work = random.Random(seed), BEGIN_S, []
    for number in range(GANGS):
        at_s += draw.expovariate(1 / 300)
        weights = [1, 1, 4] if ((at_s - BEGIN_S) // 14_400) % 2 else [5, 1, 1]
        profile = draw.choices(["1g.10gb", "2g.20gb", "3g.40gb"], weights)[0]
        run_s = draw.lognormvariate(7.8, 0.7)
        shape = PodShape(draw.choice([1, 1, 2, 4]), {f"nvidia.com/mig-{profile}": 1, "cpu": 1000})
        work.append(SubmittedGang(f"g{number}", "ml", "ml", at_s, run_s, (shape,)))
    return work


def mean_wait_s(fleet: Fleet, work: list[SubmittedGang]) -> float:
    until_s = work[-1].submitted_s + 40_000
    agent = played(fleet, cloud_provider().catalog("us-east-1"), work, ReplayWindow(BEGIN_S, until_s))
    return sum(wait_s(it, until_s) for it in agent.world.gang_histories.values()) / len(work)


@pytest.mark.slow
def test_waits_are_shorter_than_with_the_roomiest_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, streams = load({"fleet.yaml": (LAYOUTS + POOL).encode()}), [stream(seed) for seed in (0, 1)]
    by_mix = sum(mean_wait_s(fleet, work) for work in streams)
    monkeypatch.setattr(OpportunityCosts, "regret", lambda *_: 0)
    roomiest = sum(mean_wait_s(fleet, work) for work in streams)
    assert by_mix < roomiest / 2
