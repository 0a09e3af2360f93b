"""`python -m providers.sim.ec2`: a fake AWS account as a process of its own, for a sandbox or for trying things.

Prints one line of JSON with its endpoint, queue and control address once it serves, and ends on SIGTERM or Ctrl-C.
Faults are caused over HTTP at `<url>/muster-sim/...` while it runs; the routes are in `providers.sim.ec2.control`.

    curl --json '{"instance_type": "p5.48xlarge"}' http://127.0.0.1:4566/muster-sim/shortage
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

from providers.aws.catalog import package_catalog
from providers.clock import SystemClock
from providers.sim.ec2.limits import EC2_BUCKETS, NO_BUCKETS
from providers.sim.ec2.market import RegionMarket
from providers.sim.ec2.server import FakeAws
from providers.sim.ec2.spot import SpotProcess
from providers.sim.machines import MachineTimings


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal comes; the exit code."""
    options = _parser().parse_args(arguments)
    market = RegionMarket.from_catalog(
        package_catalog(options.region).catalog,
        default_capacity=options.capacity,
        buckets=NO_BUCKETS if options.no_throttling else EC2_BUCKETS,
        spot=SpotProcess(seed=options.seed, interruptions_per_h=options.interruptions_per_hour),
    )
    timings = MachineTimings(pending_s=options.pending_s, stopping_s=options.stopping_s)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    fake = FakeAws(
        market, SystemClock(), region=options.region, port=options.port, cluster=options.cluster, timings=timings
    )
    with fake:
        where = {"url": fake.url, "queue_url": fake.queue_url, "control_url": f"{fake.url}/muster-sim"}
        sys.stdout.write(json.dumps(where) + "\n")
        sys.stdout.flush()
        stopping.wait()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m providers.sim.ec2", description="A fake AWS account on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument(
        "--cluster", default="default", help="value of the muster.dev/cluster tag of subnets and groups"
    )
    parser.add_argument(
        "--capacity", type=int, default=None, help="machines in every capacity pool (default: no limit)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of spot prices and interruptions")
    parser.add_argument("--interruptions-per-hour", type=float, default=0.0, help="expected for each spot machine")
    parser.add_argument("--pending-s", type=float, default=10.0, help="launch to running, in seconds")
    parser.add_argument("--stopping-s", type=float, default=20.0, help="order to end to terminated, in seconds")
    parser.add_argument("--no-throttling", action="store_true", help="without EC2's API request limits")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
