"""The fake as a process of its own."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest


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
    with urllib.request.urlopen(f"{where['control_url']}/market", timeout=10) as answer:
        assert json.loads(answer.read())["pools"] == []
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
