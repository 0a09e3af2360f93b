"""The fake as a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from providers.sim.ec2 import FakeAws
from tests.providers.sim.ec2.api import Api
from tests.providers.sim.ec2.remote import ControlError, RemoteFake


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "providers.sim.ec2", "--port", "0", "--cluster", "demo", "--capacity", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def test_it_says_where_it_is_serves_and_ends_on_a_signal(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    where = json.loads(process.stdout.readline())
    assert where["queue_url"].startswith(where["url"])
    fake = RemoteFake(where["control_url"])
    assert list(fake.list()) == []
    assert fake.cause("faults", lost_answers=1)["lost_answers"] == 1
    with pytest.raises(ControlError, match="does not exist"):
        fake.cause("kill", instance_id="i-00000000000000000")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    with pytest.raises(ControlError):
        fake.list()


def test_machines_of_another_process_are_machines(fake: FakeAws) -> None:
    fake.market.faults.never_boots = 1
    Api(fake).fleet(2)
    remote = RemoteFake(f"{fake.url}/muster-sim/")
    assert list(remote.list()) == list(fake.list())
    assert [remote.boot_delay_s(machine) for machine in remote.list()] == [None, 60.0]
