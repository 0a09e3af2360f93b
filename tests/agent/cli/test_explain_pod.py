"""`muster explain pod` as a user types it: pods that stand, that wait, that belong to a gang."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app
from providers.sim.apiserver import ApiServer
from tests.agent.scenes import A, Scene, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import plain

FLEET = files(pool(serves=["Gangs", "Pods"], zones=[A], limits={"nodes": 2}), team(), queue())


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Scene]]:
    """A pod runs, a gang has the other machine of the pool, and one pod more than there is room for waits."""
    scene = Scene(FLEET)
    scene.sim.submit(plain("first"))
    scene.sim.advance_until(lambda: len(scene.sim.machines()) == 1, 300)
    scene.runs(gpu_job("train"))
    scene.sim.submit(plain("large", gpus=8))
    scene.sim.submit(plain("odd", gpus=1, nodeSelector={"color": "red"}))
    queued = plain("queued", gpus=8, schedulingGates=[{"name": "muster.dev/placement"}])
    queued["metadata"]["labels"]["muster.dev/queue"] = "t"
    scene.sim.submit(queued)
    scene.sim.advance(30)
    folder = tmp_path_factory.mktemp("fleet")
    for name, text in FLEET.items():
        (folder / name).write_text(text, encoding="utf-8")
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        yield folder, server.kubeconfig(tmp_path_factory.mktemp("cluster") / "kubeconfig"), scene
        server.drop_connections()


def explain(asked: tuple[Path, Path, Scene], name: str, *more: str) -> Result:
    folder, kubeconfig, _ = asked
    typed = ["explain", "pod", name, "--fleet", str(folder), "--kubeconfig", str(kubeconfig), *more]
    return CliRunner().invoke(app, typed, catch_exceptions=False)


def test_a_pod_that_stands(asked: tuple[Path, Path, Scene]) -> None:
    told = explain(asked, "first", "-n", "t").output
    assert "t/first  (Running)" in told
    assert "stands on: ip-" in told


def test_a_pod_of_a_gang(asked: tuple[Path, Path, Scene]) -> None:
    pod = next(it for it in asked[2].sim.objects("Pod") if it["metadata"]["name"].startswith("train"))
    assert "muster explain workload t/" in explain(asked, pod["metadata"]["name"]).output


def test_the_pods_of_an_owner(asked: tuple[Path, Path, Scene]) -> None:
    """By the name of the Deployment, ReplicaSet, StatefulSet or Job that has made them."""
    told = explain(asked, "train").output
    assert told.startswith("t/train-")
    assert "it belongs to a gang" in told
    assert explain(asked, "t/trai").exit_code == exits.ERROR


def test_a_pod_that_waits_in_its_queue(asked: tuple[Path, Path, Scene]) -> None:
    assert "it waits in its queue: muster explain workload t/pod-queued-" in explain(asked, "queued").output


def test_a_pod_beyond_the_limits(asked: tuple[Path, Path, Scene]) -> None:
    told = explain(asked, "t/large").output
    assert "kube-scheduler has found no place for it" in told
    assert "none: PoolLimitReached: 1 more pod of large needs machines beyond the limits of h100" in told


def test_a_pod_that_no_machine_suits(asked: tuple[Path, Path, Scene]) -> None:
    assert "none: NoMatchingOffer" in explain(asked, "odd").output


def test_a_pod_that_is_not_there(asked: tuple[Path, Path, Scene]) -> None:
    found = explain(asked, "nobody")
    assert found.exit_code == exits.ERROR
    assert "no pod 'nobody'" in found.output
