"""The fake clouds at 1,000 machines: how fast they launch and list, without a wire and through the agent's EC2 adapter.

Goals: a simulation must not wait for its cloud (100,000 launches/s), a sandbox must list 1,000 machines within 2 s.
"""

import os
import time
from collections.abc import Callable

from fleet.snapshot import CapacityPool, LaunchRequest
from model.kinds import NodeTemplate
from model.kinds.node_template import AmiTerm
from model.labels import CLUSTER
from providers.aws.catalog import package_catalog
from providers.clock import VirtualClock
from providers.ports import Cloud
from providers.sim.ec2 import FakeAws, Market, MemoryCloud

MACHINES, GANG = 1000, 8
_REGION = "us-east-1"
_IMAGE = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
_TEMPLATE = NodeTemplate(amis=(AmiTerm(ssm_parameter=_IMAGE),))
_POOL = CapacityPool("spot", "p5.48xlarge", "us-east-1a")


def run() -> dict[str, float]:
    """Launches a second, one by one and in gangs, and milliseconds to list 1,000 machines."""
    catalog = package_catalog(_REGION).catalog
    memory = MemoryCloud(Market.from_catalog(catalog), catalog, VirtualClock())
    results = _measure("memory", memory)
    clock = VirtualClock(1_795_000_000.0)
    with FakeAws(Market.from_catalog(catalog), clock) as fake:
        results |= _measure("ec2", _adapter(fake, clock))
    return results


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


def _request(token: str, count: int) -> LaunchRequest:
    tags = {CLUSTER: "default", "muster.dev/launch-group": token, "muster.dev/node-claim": token, "Name": token}
    return LaunchRequest(token, count, _POOL, "gpu", {"a": "b"}, (), tags, template=_TEMPLATE)


def _adapter(fake: FakeAws, clock: VirtualClock) -> Cloud:
    """The agent's adapter with its pacing on a clock that nobody waits for."""
    from providers.aws.clients import connect
    from providers.aws.ec2 import Ec2Cloud
    from providers.aws.user_data import ClusterAccess

    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    clients = connect(_REGION, endpoint_url=fake.url)
    return Ec2Cloud(clients, ClusterAccess("default"), clock, lambda: "1.34", sleep=clock.advance, rng=lambda: 0.5)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:44} {value:14,.1f}")
