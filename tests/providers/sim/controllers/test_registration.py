import base64
from dataclasses import replace

import pytest

from providers.sim.controllers import RegistrationOptions
from providers.sim.controllers.userdata import InvalidUserData, kubelet_arguments
from providers.sim.machines import SimulatedMachine
from tests.providers.sim.controllers.world import CPU_NODE, QUICK, ControllerWorld, Obj

CONFIG = """
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: test, apiServerEndpoint: https://example.invalid}
  kubelet:
    config: {maxPods: 58, registerWithTaints: [{key: startup, effect: NoExecute}]}
    flags:
    - --node-labels=muster.dev/node-pool=gold,nvidia.com/mig.config=all-1g.5gb
    - --register-with-taints=nvidia.com/gpu=present:NoSchedule,warm:PreferNoSchedule
"""
MIME = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo apiVersion: node.eks.aws/v1alpha1
--//
Content-Type: application/node.eks.aws

{first}
--//
Content-Type: application/node.eks.aws

{second}
--//--
"""
SECOND = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec: {kubelet: {config: {maxPods: 20}, flags: ["--node-labels=extra=1,muster.dev/node-pool=iron"]}}
"""
LABELS = {"muster.dev/node-pool": "gold", "nvidia.com/mig.config": "all-1g.5gb"}
TAINTS = [
    {"key": "startup", "effect": "NoExecute"},
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "warm", "effect": "PreferNoSchedule"},
]


@pytest.mark.parametrize(
    ("user_data", "labels", "taints", "max_pods"),
    [
        ("", {}, [], None),
        ("#!/bin/bash\necho hello: world\n", {}, [], None),
        (CONFIG, LABELS, TAINTS, 58),
        (base64.b64encode(CONFIG.encode()).decode(), LABELS, TAINTS, 58),
        (MIME.format(first=CONFIG, second=""), LABELS, TAINTS, 58),
        (
            "\n" + MIME.format(first=CONFIG, second=SECOND),
            {**LABELS, "muster.dev/node-pool": "iron", "extra": "1"},
            TAINTS,
            20,
        ),
        (f"{CONFIG}\n---\n{SECOND}", {**LABELS, "muster.dev/node-pool": "iron", "extra": "1"}, TAINTS, 20),
    ],
)
def test_user_data(user_data: str, labels: Obj, taints: list[Obj], max_pods: int | None) -> None:
    arguments = kubelet_arguments(user_data)
    assert (arguments.labels, arguments.taints, arguments.max_pods) == (labels, taints, max_pods)


def with_flag(flag: str) -> str:
    return f"apiVersion: node.eks.aws/v1alpha1\nspec: {{kubelet: {{flags: ['{flag}']}}}}"


@pytest.mark.parametrize(
    "user_data",
    [
        "apiVersion: node.eks.aws/v1alpha1\nspec: [",
        with_flag("--node-labels=node-role.kubernetes.io/gpu=true"),
        with_flag("--node-labels=kubernetes.io/role=gpu"),
        with_flag("--node-labels=oops"),
        with_flag("--register-with-taints=a=b"),
        with_flag("--register-with-taints=a=b:Sometimes"),
    ],
)
def test_user_data_with_which_a_kubelet_never_joins(user_data: str, world: ControllerWorld) -> None:
    with pytest.raises(InvalidUserData):
        kubelet_arguments(user_data)
    world.machine("i-1", user_data=user_data)
    world.pass_s(100)
    assert world.all("Node") == []
    assert "i-1" in world.sim.registration.refused


@pytest.mark.parametrize(
    "label", ["node.kubernetes.io/speed=1", "kubelet.kubernetes.io/x=1", "topology.kubernetes.io/zone=a"]
)
def test_labels_a_kubelet_may_set(label: str) -> None:
    assert kubelet_arguments(with_flag(f"--node-labels={label}")).labels


KEEPS = "{kubeReserved: {memory: 60Gi}, systemReserved: {memory: 2Gi, cpu: '1'}, evictionHard: {memory.available: 1Gi}}"
KEEPING = f"apiVersion: node.eks.aws/v1alpha1\nspec: {{kubelet: {{config: {KEEPS}}}}}"
BOTTLEROCKET = """[settings.kubernetes.kube-reserved]
memory = "60Gi"
[settings.kubernetes.system-reserved]
memory = "2Gi"
cpu = "1"
[settings.kubernetes.eviction-hard]
"memory.available" = "1Gi"
"""
BOOTSTRAP = (
    "/etc/eks/bootstrap.sh test --kubelet-extra-args "
    "'--kube-reserved=memory=60Gi --system-reserved=cpu=1,memory=2Gi --eviction-hard=memory.available<1Gi'"
)


@pytest.mark.parametrize("user_data", [KEEPING, BOTTLEROCKET, BOOTSTRAP], ids=["nodeadm", "Bottlerocket", "bootstrap"])
def test_a_kubelet_keeps_what_it_is_told_to(user_data: str, world: ControllerWorld) -> None:
    """Of 1152 GiB and 96 cores, of which the image keeps 52 GiB and a core."""
    world.machine("i-1", user_data=user_data)
    world.pass_s(20)
    left = world.the("Node", "i-1.ec2.internal")["status"]["allocatable"]
    assert (left["cpu"], left["memory"]) == ("94", "1089Gi")


@pytest.mark.parametrize("user_data", [KEEPING.replace("60Gi", "1150Gi"), BOOTSTRAP.replace("60Gi", "1150Gi")])
def test_a_kubelet_that_is_to_keep_more_than_there_is_never_joins(user_data: str, world: ControllerWorld) -> None:
    world.machine("i-1", user_data=user_data)
    world.pass_s(100)
    assert world.all("Node") == []
    assert "more memory than the machine has" in world.sim.registration.refused["i-1"]


def test_a_machine_becomes_a_node(world: ControllerWorld) -> None:
    world.machine("i-1", user_data=CONFIG)
    world.pass_s(19)
    assert world.all("Node") == []
    world.pass_s(1)
    node = world.the("Node", "i-1.ec2.internal")
    assert node["spec"]["providerID"] == "aws:///us-east-1a/i-1"
    expected = {
        **LABELS,
        "kubernetes.io/hostname": "i-1.ec2.internal",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    assert expected.items() <= node["metadata"]["labels"].items()
    assert {t["key"] for t in TAINTS} <= {t["key"] for t in node["spec"]["taints"]}
    assert node["status"]["allocatable"] == {"cpu": "95", "memory": "1100Gi", "pods": "58"}
    assert world.condition("Node", "i-1.ec2.internal", "Ready") == ("False", "KubeletNotReady")
    world.pass_s(5)
    assert world.condition("Node", "i-1.ec2.internal", "Ready") == ("True", "KubeletReady")
    assert "nvidia.com/gpu" not in world.the("Node", "i-1.ec2.internal")["status"]["allocatable"]
    world.pass_s(10)
    allocatable = world.the("Node", "i-1.ec2.internal")["status"]["allocatable"]
    assert allocatable["nvidia.com/gpu"] == "8"


def delays(machine: SimulatedMachine) -> float | None:
    return {"i-never": None, "i-slow": 500.0}.get(machine.instance_id, 20.0)


def test_slow_boots_and_machines_that_never_join() -> None:
    world = ControllerWorld(replace(QUICK, registration=RegistrationOptions(boot_delay_s=delays)))
    for name in ("i-1", "i-never", "i-slow"):
        world.machine(name)
    world.pass_s(30)
    assert len(world.all("Node")) == 1
    world.pass_s(480)
    assert [n["metadata"]["name"] for n in world.all("Node")] == ["i-1.ec2.internal", "i-slow.ec2.internal"]


@pytest.mark.parametrize("state", ["pending", "shutting-down", "terminated"])
def test_a_machine_that_does_not_run_does_not_register(world: ControllerWorld, state: str) -> None:
    world.machine("i-1", state=state)
    world.pass_s(100)
    assert world.all("Node") == []


def test_a_type_nobody_knows_never_joins(world: ControllerWorld) -> None:
    world.machine("i-1", "z9.huge")
    world.pass_s(100)
    assert "z9.huge" in world.sim.registration.refused["i-1"]


@pytest.mark.parametrize("vanishes", [True, False])
def test_the_node_of_a_gone_machine_turns_unready_then_goes(world: ControllerWorld, vanishes: bool) -> None:
    world.machine("i-1", "m7i.xlarge")
    world.pass_s(30)
    world.pod("p")
    world.pass_s(5)
    world.machines.set("i-1", state="shutting-down")
    world.pass_s(30)
    assert world.condition("Node", "i-1.ec2.internal", "Ready")[0] == "False"
    if vanishes:
        world.machines.machines.clear()
    else:
        world.machines.set("i-1", state="terminated")
    world.pass_s(9)
    assert world.get("Node", "i-1.ec2.internal") is not None
    world.pass_s(5)
    assert world.get("Node", "i-1.ec2.internal") is None
    world.pass_s(45)
    assert world.all("Pod") == []


def test_a_node_deleted_under_its_kubelet_stays_away(world: ControllerWorld) -> None:
    world.machine("i-1", "m7i.xlarge")
    world.pass_s(30)
    world.delete("Node", "i-1.ec2.internal")
    world.pass_s(600)
    assert world.all("Node") == []


def test_a_machine_in_a_dead_ones_name_is_well(world: ControllerWorld) -> None:
    world.machine("i-1", "m7i.xlarge")
    world.pass_s(30)
    world.machines.set("i-1", state="shutting-down")
    world.pass_s(5)
    world.delete("Node", "i-1.ec2.internal")  # somebody is faster than the cloud
    world.machine("i-2", "m7i.xlarge")
    world.machines.set("i-2", private_dns="i-1.ec2.internal")
    world.pass_s(60)
    assert world.condition("Node", "i-1.ec2.internal", "Ready") == ("True", "KubeletReady")


def test_a_prepared_node_is_adopted(world: ControllerWorld) -> None:
    world.node("i-1.ec2.internal", labels={"mine": "1"})
    world.machine("i-1", "m7i.xlarge")
    world.pass_s(30)
    node = world.the("Node", "i-1.ec2.internal")
    assert node["spec"]["providerID"] == "aws:///us-east-1a/i-1"
    assert node["metadata"]["labels"]["mine"] == "1"
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m7i.xlarge"


@pytest.mark.parametrize("prepared", [False, True])
def test_the_kubelet_says_how_many_volumes_the_drivers_attach(prepared: bool) -> None:
    """The CSINode goes with its node."""
    shape = replace(CPU_NODE, attach_limits={"ebs.csi.aws.com": 25})
    world = ControllerWorld(QUICK, shape_of=lambda _type: shape)
    if prepared:
        world.node("i-1.ec2.internal")
    world.machine("i-1", "m7i.xlarge")
    world.pass_s(30)
    told = world.the("CSINode", "i-1.ec2.internal")
    driver = {"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}}
    assert told["spec"] == {"drivers": [{**driver, "topologyKeys": ["topology.kubernetes.io/zone"]}]}
    (owner,) = told["metadata"]["ownerReferences"]
    assert owner["uid"] == world.the("Node", "i-1.ec2.internal")["metadata"]["uid"]
    world.delete("Node", "i-1.ec2.internal")
    world.pass_s(30)
    assert world.all("CSINode") == []


def refusing(world: ControllerWorld, resource: str, expression: str, group: str = "") -> None:
    """A policy that refuses what it is not true of."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
    world.create("ValidatingAdmissionPolicy", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    world.create("ValidatingAdmissionPolicyBinding", binding)


OTHER = "(object != null ? object : oldObject).metadata.name != 'i-1.ec2.internal'"


@pytest.mark.parametrize(("resource", "group"), [("csinodes", "storage.k8s.io"), ("nodes", "")])
def test_an_object_that_is_refused_stops_its_node_alone_and_only_as_long(resource: str, group: str) -> None:
    shape = replace(CPU_NODE, attach_limits={"ebs.csi.aws.com": 25})
    world = ControllerWorld(QUICK, shape_of=lambda _type: shape)
    refusing(world, resource, OTHER, group)
    world.machine("i-1", "m7i.xlarge")
    world.machine("i-2", "m7i.xlarge")
    world.pass_s(60)
    assert [it["metadata"]["name"] for it in world.all("CSINode")] == ["i-2.ec2.internal"]
    assert world.condition("Node", "i-2.ec2.internal", "Ready") == ("True", "KubeletReady")
    assert world.sim.registration.waiting.keys() == {"i-1"}
    assert (
        f'{resource}{"." if group else ""}{group} "i-1.ec2.internal" is forbidden'
        in world.sim.registration.waiting["i-1"]
    )
    held = world.get("Node", "i-1.ec2.internal")
    if resource == "csinodes":
        assert world.condition("Node", "i-1.ec2.internal", "Ready") == ("False", "KubeletNotReady")
        (ready,) = (it for it in (held or {})["status"]["conditions"] if it["type"] == "Ready")
        assert "csinodes.storage.k8s.io" in ready["message"]
    else:
        assert held is None
    world.delete("ValidatingAdmissionPolicyBinding", "b")
    world.pass_s(30)
    assert len(world.all("CSINode")) == 2
    assert world.condition("Node", "i-1.ec2.internal", "Ready") == ("True", "KubeletReady")
    assert world.sim.registration.waiting == {}


def test_a_node_that_may_not_go_stops_no_other_one() -> None:
    world = ControllerWorld()
    for name in ("i-1", "i-2"):
        world.machine(name, "m7i.xlarge")
    world.pass_s(30)
    refusing(world, "nodes", f"object != null || {OTHER}")
    for name in ("i-1", "i-2"):
        world.machines.set(name, state="terminated")
    world.pass_s(60)
    assert [it["metadata"]["name"] for it in world.all("Node")] == ["i-1.ec2.internal"]
    assert "is forbidden" in world.sim.registration.waiting["i-1"]
    world.delete("ValidatingAdmissionPolicyBinding", "b")
    world.pass_s(30)
    assert world.all("Node") == []
    assert world.sim.registration.waiting == {}


def test_nodes_of_no_machine_are_left_alone(world: ControllerWorld) -> None:
    world.ready_node("handmade")
    world.pass_s(600)
    assert world.condition("Node", "handmade", "Ready") == ("True", "KubeletReady")


def test_nobody_is_woken_for_polls_where_the_kernel_is_told_of_machines() -> None:
    """What is new is seen at the next poll all the same."""
    wakes = {}
    for told in (False, True):
        world = ControllerWorld(QUICK, told=told)
        world.machine("i-1")
        world.settle()
        before, instants = world.now, []
        while world.now < before + 25.0:
            world.clock.advance_to(world.sim.kernel.run_until_quiet(world.now) or before + 25.0)
            instants.append(world.now - before)
        assert len(world.store.list(world.store.resource("Node"))) == 1
        wakes[told] = instants
    assert wakes[False][:3] == [2.0, 4.0, 6.0]
    assert wakes[True][:2] == [20.0, 22.0]
