"""The benchmarks are runnable; what they measure is never asserted."""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bench
from bench import cluster
from bench.__main__ import GOALS
from fleet.deciders import DECIDERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", bench.names())
def test_each_measures_something(name: str) -> None:
    run = import_module(f"bench.{name}").run
    assert not [it for it in inspect.signature(run).parameters.values() if it.default is it.empty]
    assert run.__doc__


def test_goals_are_for_benchmarks_that_exist() -> None:
    assert GOALS.keys() <= set(bench.names())


def test_every_decider_is_measured() -> None:
    from bench.decisions import DecisionWorld, deciders_ms

    found = deciders_ms(DecisionWorld(cluster.ClusterSize(nodes=40, gangs=2)))
    assert len(found) == len(DECIDERS)
    assert min(found.values()) > 0


def test_the_cluster_is_at_rest() -> None:
    """A small one of the same make: a decision in it would be measured as if it were nothing."""
    from bench.decisions import DecisionWorld

    world = DecisionWorld(cluster.ClusterSize(nodes=40, gangs=2))
    world.brain.turn()
    world.churn(0)
    world.clock.advance(1.0)
    world.brain.turn()
    assert world.sync.fleet is not None
    assert not world.workers.asked
    assert len(world.pods) == cluster.ClusterSize(nodes=40, gangs=2).pods


def test_numbers_come_as_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "catalog"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout)
    assert found["catalog"]["goals"]["aws_facts_load_ms"]["at_most"] == 60
    assert found["machine"]["cores"] >= 1
    assert "aws_facts_load_ms" in done.stderr


def test_an_unknown_name_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "nonsense"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
