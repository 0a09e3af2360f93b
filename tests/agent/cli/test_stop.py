"""`muster stop` and `start`: a gang on the cluster, a queue in the fleet's files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app
from agent.sandbox.example import example_fleet
from model.loader import load
from providers.sim.apiserver import ApiServer
from tests.agent.scenes import Scene, files, gpu_jobset, pool, queue, team


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(it) for it in arguments], catch_exceptions=False)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Scene, Path]]:
    scene = Scene(files(pool(), team(), queue()))
    scene.runs(gpu_jobset("train"))
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        yield scene, server.kubeconfig(tmp_path / "kubeconfig")
        server.drop_connections()


def test_a_workload_leaves_and_comes_back(served: tuple[Scene, Path]) -> None:
    scene, kubeconfig = served
    done = muster("stop", "workload", "t/train", "--kubeconfig", kubeconfig)
    assert (done.exit_code, "t/train leaves" in done.stdout) == (exits.OK, True)
    scene.sim.advance(60)
    assert scene.state("train") == "Pending"
    done = muster("start", "workload", "train", "-n", "t", "--kubeconfig", kubeconfig)
    assert done.stdout == "t/train waits in queue t again\n"
    scene.until_running("train")


@pytest.mark.parametrize("name", ["nobody", "other/train"])
def test_a_workload_that_is_not_there(served: tuple[Scene, Path], name: str) -> None:
    done = muster("stop", "workload", name, "--kubeconfig", served[1])
    assert (done.exit_code, "no workload" in done.stderr) == (exits.ERROR, True)


BLOCK = "apiVersion: muster.dev/v1alpha1\nkind: Queue\nmetadata:\n  name: t\nspec:\n  team: t\n  flavors: [h100]\n"
HEAD = "apiVersion: muster.dev/v1alpha1\nkind: Queue\nmetadata: {name: t}\n"
INDENTED = HEAD + "spec:\n    # why\n    team: t\n    flavors: [h100]\n"
FLOW = HEAD + "spec: {team: t, flavors: [h100]}\n"
STOPPED = BLOCK + "  stopPolicy: HoldAndDrain # by ada\n"


@pytest.mark.parametrize("text", [BLOCK, INDENTED, FLOW, STOPPED])
@pytest.mark.parametrize("other", ["", "kind: Queue\nmetadata: {name: tt}\nspec: {team: t, flavors: [h100]}\n"])
def test_a_queue_is_stopped_and_started_in_its_file(tmp_path: Path, text: str, other: str) -> None:
    (tmp_path / "rest.yaml").write_text(files(pool(), team())["fleet.yaml"])
    other = other and f"apiVersion: muster.dev/v1alpha1\n{other}---\n"
    place = tmp_path / "queues.yaml"
    place.write_text(other + text)
    done = muster("stop", "queue", "t", "--fleet", tmp_path)
    assert done.exit_code == exits.OK, done.stderr
    assert f'git -C {tmp_path} commit -m "Stop queue t" queues.yaml' in done.stdout
    assert policies(tmp_path)["t"] == "Hold"
    assert "already" in muster("stop", "queue", "t", "--fleet", tmp_path).stdout
    muster("stop", "queue", "t", "--fleet", tmp_path, "--drain")
    assert policies(tmp_path)["t"] == "HoldAndDrain"
    assert muster("start", "queue", "t", "--fleet", tmp_path).exit_code == exits.OK
    assert policies(tmp_path) == {"t": "None"} | ({"tt": "None"} if other else {})
    assert without_policy(place.read_text()) == without_policy(other + text), "nothing else is touched"


def without_policy(text: str) -> list[str]:
    return [line for line in re.sub(r'stopPolicy: "None", ', "", text).splitlines() if "stopPolicy" not in line]


def policies(folder: Path) -> dict[str, str]:
    fleet = load({path.name: path.read_bytes() for path in sorted(folder.glob("*.yaml"))})
    return {name: declared.spec.stop_policy for name, declared in fleet.queues.items()}


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("{kind: Queue, metadata: {name: t}, spec: {team: t, flavors: [h100]}}\n", "t", "not edited here"),
        ("kind: Queue\nmetadata: {name: t}\nspec: {team: t, flavors: [h100]}\n", "tt", "no queue 'tt'"),
    ],
)
def test_what_cannot_be_edited_is_left_as_it_is(tmp_path: Path, text: str, name: str, said: str) -> None:
    (tmp_path / "rest.yaml").write_text(files(pool(), team())["fleet.yaml"])
    place = tmp_path / "queues.yaml"
    head = "apiVersion: muster.dev/v1alpha1"
    place.write_text(text.replace("{kind", f"{{{head}, kind") if text.startswith("{") else f"{head}\n{text}")
    before = place.read_bytes()
    done = muster("stop", "queue", name, "--fleet", tmp_path)
    assert (done.exit_code, said in done.stderr) == (exits.ERROR, True)
    assert place.read_bytes() == before


def test_the_queues_of_the_sandbox_can_be_stopped(tmp_path: Path) -> None:
    for path in example_fleet().glob("*.yaml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name in policies(tmp_path):
        assert muster("stop", "queue", name, "--fleet", tmp_path).exit_code == exits.OK
    assert set(policies(tmp_path).values()) == {"Hold"}
