"""`muster offers`, `explain node` and `explain pool` as a user types them, without and with a cluster."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent.answers.node import lines
from agent.cli import exits
from agent.cli.app import app
from fleet.explain.node import node_view
from fleet.snapshot import MachineEvent
from model import labels
from providers.sim.apiserver import ApiServer
from tests.agent.scenes import P5, A, B, Scene, doc, files, gpu_job, gpu_jobset, pool, queue, team
from tests.support.fleets import NOW, small_fleet
from tests.support.world import World

FLEET = files(
    pool(limits={"nodes": 2}, zones=[A]),
    pool("spare", zones=[B], disruption={"budgets": [{"nodes": 1}], "consolidationPolicy": "WhenEmpty"}),
    team(quotas={"h100": {"nvidia.com/gpu": 24}}),
    queue(),
    doc("FleetPolicy", "p", freezeWindows=[{"name": "yule", "schedule": "0 0 24 12 *", "duration": "72h"}]),
)


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def written(folder: Path, fleet: Mapping[str, str]) -> Path:
    for name, text in fleet.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("fleet"), FLEET)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Path]]:
    """One gang runs on both machines that the pool may have, another waits; the other pool's machine is sold out."""
    scene = Scene(FLEET)
    scene.runs(gpu_jobset("train"))
    scene.short(P5, B)
    scene.sim.submit(gpu_job("later", gpus=8))
    scene.sim.advance(5)
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        yield scene, server.kubeconfig(tmp_path_factory.mktemp("cluster") / "kubeconfig")
        server.drop_connections()


# -- offers -----------------------------------------------------------------------------------------------------------


def test_offers_without_a_cluster(folder: Path) -> None:
    done = muster("offers", "--gpu", "H100", "--count", 16, "--fleet", folder)
    assert done.exit_code == exits.OK
    head, *rows = done.stdout.splitlines()
    assert head.split()[:7] == ["POOL", "TYPE", "ZONE", "CAPACITY", "SHARING", "EACH", "MACHINES"]
    assert [row.split()[:7] for row in rows[:2]] == [
        ["h100", P5, A, "on-demand", "whole", "8", "2"],
        ["spare", P5, B, "on-demand", "whole", "8", "2"],
    ]
    assert rows[0].endswith("yes, 2 within limits")
    assert rows[1].endswith("yes")
    assert rows[2].startswith("prices: ")
    assert "--world" in rows[3]


def test_offers_in_a_world(folder: Path, cluster: tuple[Scene, Path]) -> None:
    done = muster("offers", "--gpu", "h100", "--fleet", folder, "--world", "--kubeconfig", cluster[1])
    assert done.exit_code == exits.OK
    assert "no, 0 within limits" in done.stdout
    assert "the agent's own are" in done.stdout
    assert "--world" not in done.stdout


def test_offers_as_json(folder: Path) -> None:
    done = muster("offers", "--gpu", "h100", "--count", 9, "--pool", "spare", "--fleet", folder, "-o", "json")
    told = json.loads(done.stdout)
    (offer,) = told["offers"]
    assert (offer["machines"], offer["each"], offer["obstacle"], offer["machines_allowed"]) == (2, 8, "", None)
    assert offer["total_usd_per_hour"] == pytest.approx(2 * offer["usd_per_hour"])
    assert told["why_none"] == []
    assert told["priced_at_s"] > 0


def test_no_offer_says_why(folder: Path) -> None:
    done = muster("offers", "--gpu", "a100", "--fleet", folder)
    assert done.exit_code == exits.OK
    assert "nothing can be bought now: NoMatchingOffer: no pool buys a100; on sale in us-east-1 are" in done.stdout
    done = muster("offers", "--gpu", "h100", "--count", 24, "--pool", "h100", "--fleet", folder, "-o", "json")
    assert [why["reason"] for why in json.loads(done.stdout)["why_none"]] == ["PoolLimitReached"]


def test_a_long_answer_is_cut(tmp_path: Path) -> None:
    fleet = written(tmp_path, files(pool(types=(P5,), zones=[A, B])))
    done = muster("offers", "--gpu", "h100", "--most", 1, "--fleet", fleet)
    assert "and 1 dearer; --most 0 shows all" in done.stdout
    assert "dearer" not in muster("offers", "--gpu", "h100", "--most", 0, "--fleet", fleet).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--gpu", "h10"), exits.ERROR, "did you mean 'h100'?"),
        (("--gpu", "1g.1gb"), exits.ERROR, "no GPU can be cut"),
        (("--gpu", "h100", "--region", "moon-1"), exits.ERROR, "check --region"),
        (("--gpu", "h100", "--world", "--kubeconfig", "/nowhere"), exits.ERROR, "muster: "),
        (("--gpu", "h100", "--fleet", "/nowhere"), exits.ERROR, "nowhere"),
        (("--gpu", "h100", "--count", "0"), 2, "count"),
    ],
)
def test_wrong_questions(folder: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    given = arguments if "--fleet" in arguments else (*arguments, "--fleet", folder)
    done = muster("offers", *given)
    assert done.exit_code == code
    assert words in done.stderr


@pytest.mark.parametrize(
    "command", [("offers", "--gpu", "h100"), ("explain", "pool", "h100"), ("explain", "node", "n")]
)
def test_an_invalid_fleet(tmp_path: Path, command: tuple[str, ...]) -> None:
    broken = {"fleet.yaml": FLEET["fleet.yaml"].replace("instanceTypes", "instanceTyps")}
    done = muster(*command, "--fleet", written(tmp_path, broken))
    assert done.exit_code == exits.INVALID
    assert "instanceTypes" in done.stderr


# -- explain node -----------------------------------------------------------------------------------------------------


def test_explain_a_node(folder: Path, cluster: tuple[Scene, Path]) -> None:
    scene, kubeconfig = cluster
    claim = min(scene.sim.objects("NodeClaim"), key=lambda it: str(it["metadata"]["name"]))
    by_node = muster("explain", "node", claim["status"]["node"], "--fleet", folder, "--kubeconfig", kubeconfig)
    by_claim = muster("explain", "node", claim["metadata"]["name"], "--fleet", folder, "--kubeconfig", kubeconfig)
    assert by_node.exit_code == by_claim.exit_code == exits.OK
    head, *rows = by_node.stdout.splitlines()
    assert head == f"{claim['status']['node']}  (claim {claim['metadata']['name']}, pool h100)"
    told = {row.strip().partition(":")[0]: row.partition(":")[2].strip() for row in rows}
    assert told["machine"].startswith(f"{P5} on-demand {A}, i-")
    assert told["state"].startswith("Ready for ")
    assert told["bought"].endswith(f"at {claim['spec']['usdPerHour']:.2f} USD/h, for t/train")
    assert told["stands"].startswith("t/train, priority 100, 1 pod here, Admitted, does not say when it ends; stopped")
    assert told["emptiness"].startswith("keeps (Occupied): t/train on it")
    assert told["drift"].startswith("keeps (NotDue): ")
    assert "left" in told["expiry"]
    assert told["consolidation"].startswith("keeps (Policy): ")
    assert {"interruption", "repair"} <= set(told)


def test_explain_a_node_tells_what_happened_to_it() -> None:
    world = World(small_fleet())
    events = (MachineEvent(NOW - 7200, "GpuFault", "GPU-1: XID 31"), MachineEvent(NOW - 60, "NodeReady", "node n"))
    claim = world.machine("m0").remembering(*events)
    told = list(lines(node_view(world.snapshot(), claim), NOW))
    assert [it.strip() for it in told if "happened" in it] == [
        "happened: 120m ago: GpuFault: GPU-1: XID 31",
        "happened: 60s ago: NodeReady: node n",
    ]


def test_explain_a_node_tells_that_somebody_has_cordoned_it() -> None:
    world = World(small_fleet())
    claim = world.machine("m0")
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], unschedulable=True)
    [state] = [it for it in lines(node_view(world.snapshot(), claim), NOW) if "state:" in it]
    assert state.endswith("; it is cordoned: nothing new comes")


def test_explain_a_node_without_the_fleet(cluster: tuple[Scene, Path]) -> None:
    scene, kubeconfig = cluster
    name = scene.sim.objects("NodeClaim")[0]["metadata"]["name"]
    done = muster("explain", "node", name, "--kubeconfig", kubeconfig)
    assert done.exit_code == exits.OK
    assert "emptiness" not in done.stdout
    assert done.stdout.splitlines()[-1].strip().startswith("--fleet")


def test_explain_a_node_that_nobody_bought(folder: Path, cluster: tuple[Scene, Path]) -> None:
    scene, kubeconfig = cluster
    [bought, *_] = [node for node in scene.sim.objects("Node") if not node["spec"].get("unschedulable")]
    node = deepcopy(bought)
    own = {labels.NODE_CLAIM, labels.NODE_POOL}
    told = {key: text for key, text in node["metadata"]["labels"].items() if key not in own}
    node["metadata"] = {"name": "theirs", "labels": {**told, labels.ZONE: B, labels.HOSTNAME: "theirs"}}
    node["spec"] = {"providerID": f"aws:///{B}/i-theirs"}
    nodes = scene.sim.store.resource("Node")
    created = scene.sim.store.create(nodes, node)
    scene.sim.store.update(nodes, {**created, "status": bought["status"]}, subresource="status")
    without = muster("explain", "node", "theirs", "--kubeconfig", kubeconfig)
    done = muster("explain", "node", "theirs", "--fleet", folder, "--kubeconfig", kubeconfig)
    scene.sim.store.delete(nodes, "theirs")
    assert (without.exit_code, "--fleet" in without.stderr) == (exits.ERROR, True)
    assert done.exit_code == exits.OK
    head, machine, how, *pools = done.stdout.splitlines()
    assert head.startswith("theirs  has no claim")
    assert machine.split() == ["machine:", f"{P5},", "i-theirs"]
    assert "muster.dev/adopt=<cluster>/<pool>" in how
    why = f"{labels.ZONE}={B} does not meet the requirements of node pool h100"
    assert pools == [
        f"  h100:          refused (RequirementsNotMet): {why}",
        "  spare:         would be adopted",
    ]


def test_explain_a_node_that_is_not_there(cluster: tuple[Scene, Path]) -> None:
    done = muster("explain", "node", "nowhere", "--kubeconfig", cluster[1])
    assert done.exit_code == exits.ERROR
    assert "no node or claim 'nowhere'; there are: ip-" in done.stderr


# -- explain pool -----------------------------------------------------------------------------------------------------


def test_explain_a_pool(folder: Path, cluster: tuple[Scene, Path]) -> None:
    done = muster("explain", "pool", "h100", "--fleet", folder, "--kubeconfig", cluster[1])
    assert done.exit_code == exits.OK
    for words in (
        "h100  (2 Ready, weight 0)",
        "  limits:   nodes: 2 of 2, 0 left",
        "  budgets:  100% of its machines at once, for every reason: open",
        "  may go:   2 Empty, 2 Underutilized, 2 Drifted, 2 Expired",
        "  freezes:  yule: closed, opens in ",
        " on sale: ",
        "instanceTypes p5.48xlarge: ",
        "room within the limits: 0 left, 0 types in 0 zones  <- nothing is left",
        "  short:    nothing",
        "  waiting:  t/later for ",
        "PoolLimitReached: ",
        "  buying:   for nobody",
    ):
        assert words in done.stdout, words


def test_explain_a_pool_of_nothing(folder: Path, cluster: tuple[Scene, Path]) -> None:
    done = muster("explain", "pool", "spare", "--fleet", folder, "--kubeconfig", cluster[1])
    assert "spare  (no machines, weight 0)" in done.stdout
    assert "  limits:   none" in done.stdout
    assert "  waiting:  nobody" in done.stdout


def test_explain_a_pool_that_is_not_declared(folder: Path) -> None:
    done = muster("explain", "pool", "h10", "--fleet", folder)
    assert done.exit_code == exits.ERROR
    assert "did you mean 'h100'?" in done.stderr
