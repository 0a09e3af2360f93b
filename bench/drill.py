"""A purchase of some 6,000 machines in one pass, under EC2's documented request limits and on subnets that run full.

10,000 recorded pods wait on an empty cluster (`bench.capacity.recorded`). A pass of the agent's deciders buys for them,
the agent's EC2 adapter launches what was decided, in real time and with as many workers as the agent has, and what
comes of each launch is settled by the agent's rules. What fell through is decided again until every pod has a machine.
Without the recorded facts (`MUSTER_SHARED`) there is nothing to measure.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from bench.capacity import recorded
from bench.cloud import TEMPLATE, adapter
from fleet.actions import NominatePods, OpenClaims, SaveClaim, TerminateMachines
from fleet.fence import told_apart
from fleet.nodeclaims.launch import launch_groups, launch_request
from fleet.nodeclaims.launch_outcome import settle
from fleet.scheduling import cycle
from fleet.snapshot import CapacityPool, Catalog, Claim, LaunchOutcome, LaunchRequest, PodVerdict, Snapshot
from model.fleet import Fleet
from providers.clock import Clock, SystemClock
from providers.sim.ec2 import FakeAws, RegionMarket
from providers.sim.ec2.limits import EC2_BUCKETS

SET = "singles-10000"
NO_ADDRESSES = "InsufficientFreeAddressesInSubnet"
MOST_PASSES = 20
PAUSE_S = 1.0
"""Between two passes; what was refused for the rate is asked for again by then."""
LEFT = {"us-east-1a": 2000, "us-east-1b": 1000}
"""Zone -> addresses left in its subnet; the third has room for all."""
Launches = Callable[[Sequence[LaunchRequest]], Sequence[LaunchOutcome]]


@dataclass(slots=True)
class LaunchDrill:
    """Pods that wait, and the claims of what is bought for them."""

    fleet: Fleet
    seen: Snapshot
    claims: dict[str, Claim] = field(default_factory=dict)
    shortages: dict[CapacityPool, float] = field(default_factory=dict)
    verdicts: Mapping[str, PodVerdict] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    """Code of a failure -> launches that ended with it."""
    given_back: list[str] = field(default_factory=list)
    asked: int = 0
    passes: int = 0

    @property
    def missing(self) -> list[Claim]:
        """The claims without a machine."""
        return [claim for claim in self.claims.values() if not claim.instance_id]

    def turn(self, launches: Launches, now_s: float) -> None:
        """One pass: decide, launch what was decided, and settle what comes of it."""
        self.passes += 1
        self._decide(now_s)
        seen = self._snapshot(now_s)
        groups = [lot for lot in launch_groups(seen).values() if not any(claim.instance_id for claim in lot)]
        requests = [replace(launch_request(self.fleet, seen, lot), template=TEMPLATE) for lot in groups]
        for lot, outcome in zip(groups, launches(requests), strict=True):
            self._settle(lot, outcome, now_s)

    def _snapshot(self, now_s: float) -> Snapshot:
        claims, shortages = dict(self.claims), dict(self.shortages)  # what has changed may not be the same object
        return replace(self.seen, now_s=now_s, claims=claims, shortages=shortages, pod_verdicts=self.verdicts)

    def _decide(self, now_s: float) -> None:
        actions, failed = told_apart(cycle.decide(self.fleet, self._snapshot(now_s)))
        if failed:
            raise RuntimeError(str(failed[0]))
        for action in actions:
            if isinstance(action, OpenClaims):
                self.claims |= {claim.name: replace(claim, uid=f"uid-{claim.name}") for claim in action.claims}
            elif isinstance(action, NominatePods):
                self.verdicts = action.verdicts

    def _settle(self, lot: Sequence[Claim], outcome: LaunchOutcome, now_s: float) -> None:
        self.asked += 1
        self.reasons.update(failure.code for failure in outcome.failures)
        settled = settle(outcome, lot, self._snapshot(now_s))
        self.shortages |= settled.shortages
        for action in settled.actions:
            if isinstance(action, TerminateMachines):
                self.given_back += action.instance_ids
            elif isinstance(action, SaveClaim) and action.claim.disruption is not None:
                self.claims.pop(action.claim.name, None)
            elif isinstance(action, SaveClaim):
                self.claims[action.claim.name] = action.claim


def bought(drill: LaunchDrill, launches: Launches, now: Callable[[], float], pause: Callable[[float], None]) -> None:
    """Passes until every pod has a machine. Raises `RuntimeError` where that takes too many."""
    while not drill.passes or drill.missing or not all(it.claim in drill.claims for it in drill.verdicts.values()):
        if drill.passes == MOST_PASSES:
            raise RuntimeError(f"{len(drill.missing)} machines are missing after {MOST_PASSES} passes: {drill.reasons}")
        if drill.passes:
            pause(PAUSE_S)
        drill.turn(launches, now())


def drill_of(problem: recorded.RecordedProblem, known: recorded.RecordedSet, catalog: Catalog) -> LaunchDrill:
    """The pods of a problem, for which nothing has been bought."""
    return LaunchDrill(known.fleet(), recorded.snapshot(problem, catalog))


def leave_addresses(fake: FakeAws, left: Mapping[str, int]) -> None:
    """Take all but so many addresses of the cluster's subnet in each zone, as if others used them."""
    for subnet in fake.site.subnets:
        if subnet.availability_zone in left:
            subnet._available_ip_addresses = left[subnet.availability_zone]


def lost(fake: FakeAws, claims: Iterable[Claim]) -> int:
    """Machines that run and belong to no claim, or are claimed and do not run."""
    running = {vm.id for vm in fake.account.vms() if vm.alive}
    return len(running ^ {claim.instance_id for claim in claims})


def run() -> dict[str, float]:
    """Seconds of real time until 6,000 machines are bought, calls, and how many were refused for the rate."""
    if not recorded.available(SET):
        return {}
    known = recorded.recorded(SET)
    return measured(known, "roomy", {}) | measured(known, "full_subnets", LEFT)


def measured(known: recorded.RecordedSet, name: str, left: Mapping[str, int]) -> dict[str, float]:
    """One purchase where the subnets of some zones have so many addresses left."""
    from agent.process import WORKERS  # with all it needs

    catalog, clock = known.catalog(), SystemClock()
    drill = drill_of(known.problems[0], known, catalog)
    with FakeAws(RegionMarket.from_catalog(catalog, buckets=EC2_BUCKETS), clock) as fake:
        leave_addresses(fake, left)
        cloud = adapter(fake, clock)
        with ThreadPoolExecutor(WORKERS) as pool:
            began_s = time.perf_counter()
            bought(drill, lambda requests: list(pool.map(cloud.launch, requests)), _epoch_s(clock, drill), time.sleep)
            took_s = time.perf_counter() - began_s
        return {
            f"{name}_s": took_s,
            f"{name}_machines": float(len(drill.claims)),
            f"{name}_passes": float(drill.passes),
            f"{name}_launches": float(drill.asked),
            f"{name}_calls": float(fake.account.calls["CreateFleet"]),
            f"{name}_calls_throttled": float(fake.account.throttled.total()),
            f"{name}_without_addresses": float(drill.reasons[NO_ADDRESSES]),
            f"{name}_lost": float(lost(fake, drill.claims.values())),
        }


def _epoch_s(clock: Clock, drill: LaunchDrill) -> Callable[[], float]:
    """The instant of the drill's snapshot, and so much later as the clock has moved on."""
    began_s = clock.monotonic()
    return lambda: drill.seen.now_s + clock.monotonic() - began_s


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:44} {value:14,.1f}")
