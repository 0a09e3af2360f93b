"""`muster explain buffer` as a user types it: room that is ready, room that is missing and why."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app
from providers.sim.apiserver import ApiServer
from tests.agent.scenes import A, Scene, files, pool, queue, team
from tests.agent.test_simulation_capacity_buffers import buffer, template

FLEET = files(
    pool(serves=["Gangs", "Pods"], zones=[A], limits={"nodes": 1}),
    team(),
    queue(),
    template(gpus=4),
    buffer(replicas=3),
    buffer("none", limits={"nvidia.com/gpu": 3}),
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The one machine that the limit allows has room for two of three."""
    scene = Scene(FLEET)
    scene.until(lambda: len(scene.sim.objects("Node")) == 1, 600)
    scene.sim.advance(120)
    folder = tmp_path_factory.mktemp("fleet")
    for name, text in FLEET.items():
        (folder / name).write_text(text, encoding="utf-8")
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        yield folder, server.kubeconfig(tmp_path_factory.mktemp("cluster") / "kubeconfig")
        server.drop_connections()


def explain(asked: tuple[Path, Path], what: str, name: str) -> Result:
    folder, kubeconfig = asked
    typed = ["explain", what, name, "--fleet", str(folder), "--kubeconfig", str(kubeconfig)]
    return CliRunner().invoke(app, typed, catch_exceptions=False)


def test_what_there_is_room_for_and_what_is_missing(asked: tuple[Path, Path]) -> None:
    told = explain(asked, "buffer", "t/ahead").output
    assert "t/ahead  (3 replicas of PodTemplate spare)\n  asks:     nvidia.com/gpu 4\n  pools:    h100\n" in told
    assert "  ready:    2, on ip-" in told
    assert "  missing:  1: PoolLimitReached: 1 more pod of replicas needs machines beyond the limits of h100" in told


def test_a_buffer_of_none(asked: tuple[Path, Path]) -> None:
    assert "t/none  (0 replicas" in explain(asked, "buffer", "none").output


def test_a_buffer_that_is_not_there(asked: tuple[Path, Path]) -> None:
    found = explain(asked, "buffer", "aheat")
    assert (found.exit_code, "declared" in found.output or "did you mean" in found.output) == (exits.ERROR, True)


def test_a_machine_says_that_it_is_kept_for_the_buffer(asked: tuple[Path, Path]) -> None:
    told = explain(asked, "buffer", "ahead").output
    node = told.split("on ", 1)[1].split(" ", 1)[0]
    assert "room for the CapacityBuffer t/ahead on it" in explain(asked, "node", node).output
