"""The fake clouds at 1,000 machines: how fast they launch and list, without a wire and through the agent's EC2 adapter.

Goals: a simulation must not wait for its cloud (100,000 launches/s), a sandbox must list 1,000 machines within 2 s, and
EC2's own request limits must not be felt: 1,000 machines of 20 shapes within 5 s of real time, not one call refused.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fleet.snapshot import CapacityPool, Catalog, LaunchOutcome, LaunchRequest
from model.kinds import NodeTemplate
from model.kinds.aws import AmiTerm
from model.labels import CLUSTER
from providers.aws.catalog import package_catalog
from providers.clock import Clock, SystemClock, VirtualClock
from providers.ports import Cloud
from providers.sim.ec2 import FakeAws, MemoryCloud, RegionMarket
from providers.sim.ec2.limits import STRICTER

MACHINES, GANG, SHAPES = 1000, 8, 20
_REGION = "us-east-1"
_IMAGE = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
TEMPLATE = NodeTemplate(amis=(AmiTerm(ssm_parameter=_IMAGE),))
_POOL = CapacityPool("spot", "p5.48xlarge", "us-east-1a")


def run() -> dict[str, float]:
    """Launches a second, one by one and in gangs, and milliseconds to list 1,000 machines."""
    catalog = package_catalog(_REGION).catalog
    memory = MemoryCloud(RegionMarket.from_catalog(catalog), catalog, VirtualClock())
    results = _measure("memory", memory)
    clock = VirtualClock(1_795_000_000.0)
    with FakeAws(RegionMarket.from_catalog(catalog), clock) as fake:
        results |= _measure("ec2", adapter(fake, clock))
    return results | _at_scale(catalog)


def _at_scale(catalog: Catalog) -> dict[str, float]:
    """20 shapes of 50 machines, asked for by as many workers as the agent has, under EC2's limits in real time.

    The limits are stricter than what is documented: machines of a fleet count like those of RunInstances. The adapter
    is new: it looks up subnets, groups and the image, and makes a launch template for each shape, as after a restart.
    """
    from agent.process import WORKERS  # with all it needs, which the other numbers shall not carry

    clock = SystemClock()
    offers = [offer for offer in catalog.offers if offer.capacity_type == "on-demand" and offer.instance_type.gpu_count]
    pools = [offer.pool_key for offer in offers][:: max(1, len(offers) // SHAPES)][:SHAPES]
    requests = [_request(f"shape-{n}", MACHINES // SHAPES, pool, f"pool-{n}") for n, pool in enumerate(pools)]
    with FakeAws(RegionMarket.from_catalog(catalog, buckets=STRICTER), clock) as fake:
        cloud = adapter(fake, clock)
        cloud.catalog()
        with ThreadPoolExecutor(WORKERS) as pool:
            outcomes: list[LaunchOutcome] = []
            took_s = _seconds(lambda: outcomes.extend(pool.map(cloud.launch, requests)))
        return {
            "launch_1000_of_20_shapes_s": took_s,
            "launch_1000_machines": float(sum(len(outcome.instances) for outcome in outcomes)),
            "launch_1000_calls": float(fake.account.calls["CreateFleet"]),
            "launch_1000_calls_throttled": float(fake.account.throttled.total()),
        }


def _measure(name: str, cloud: Cloud) -> dict[str, float]:
    whole_s = _seconds(lambda: cloud.launch(_request("whole", MACHINES // 2)))
    tokens = [f"gang-{number}" for number in range(MACHINES // 2 // GANG)]
    gangs_s = _seconds(lambda: [cloud.launch(_request(token, GANG)) for token in tokens])
    listed = len(cloud.instances())
    list_s = min(_seconds(cloud.instances) for _ in range(3))
    return {
        f"{name}_machines_launched_at_once_per_s": MACHINES // 2 / whole_s,
        f"{name}_gangs_of_8_launched_per_s": len(tokens) / gangs_s,
        f"{name}_describe_{listed}_ms": 1000 * list_s,
    }


def _request(token: str, count: int, pool: CapacityPool = _POOL, node_pool: str = "gpu") -> LaunchRequest:
    tags = {CLUSTER: "default", "muster.dev/launch-group": token, "muster.dev/node-claim": token, "Name": token}
    labels = {"muster.dev/node-pool": node_pool}
    return LaunchRequest(token, count, pool, node_pool, labels, (), tags, template=TEMPLATE)


def adapter(fake: FakeAws, clock: Clock) -> Cloud:
    """The agent's adapter; on a virtual clock its pauses move the time."""
    from providers.aws.clients import connect
    from providers.aws.ec2 import Ec2Cloud
    from providers.aws.user_data import ClusterAccess

    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    clients = connect(_REGION, endpoint_url=fake.url)
    pause = clock.advance if isinstance(clock, VirtualClock) else time.sleep
    return Ec2Cloud(clients, ClusterAccess("default"), clock, lambda: "1.34", sleep=pause, rng=lambda: 0.5)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:44} {value:14,.1f}")
