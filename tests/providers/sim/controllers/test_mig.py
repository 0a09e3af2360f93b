"""The MIG label protocol with its traps, against the sequences recorded from the real manager's source."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from model.gpu_sharing import plugin_configs
from model.kinds.node_pool import Sharing
from providers.sim.controllers import MigOptions
from providers.sim.controllers.device_plugin import DEPLOY, PAUSED
from providers.sim.controllers.mig_manager import CONFIG, STATE, read_mig_fault
from tests.providers.sim.controllers.world import QUICK, ControllerWorld, Obj, pod_template
from tests.support.shared import shared_path

NODE = "i-1.ec2.internal"
FILE = """
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  all-3g.20gb: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}]
  half:
  - {devices: [0, 1, 2, 3], mig-enabled: false}
  - {devices: [4, 5, 6, 7], mig-enabled: true, mig-devices: {1g.5gb: 7}}
  too-much: [{devices: all, mig-enabled: true, mig-devices: {7g.40gb: 2}}]
  balanced:
  - {device-filter: ["0x20B010DE"], devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}
  - {device-filter: "0x233010DE", devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}
"""


def fits(_model: str, profiles: Mapping[str, int]) -> bool:
    return sum(int(profile[0]) * count for profile, count in profiles.items()) <= 7


class MigWorld(ControllerWorld):
    """One p4d node whose layouts are published, with a record of every state the label ever had."""

    def __init__(self, *, layout: str | None = None, **mig: object) -> None:
        super().__init__(replace(QUICK, mig=MigOptions(first_delay_s=10.0, **mig)), feasible=fits)
        self.create("Namespace", {"metadata": {"name": "gpu-operator"}})
        self.publish(FILE)
        self.seen: list[str | None] = []
        self.store.subscribe(self._note, resource=self.store.resource("Node"))
        flag = f"--node-labels={CONFIG}={layout}" if layout else "--v=2"
        self.machine("i-1", user_data=f"apiVersion: node.eks.aws/v1alpha1\nspec: {{kubelet: {{flags: ['{flag}']}}}}")

    def publish(self, text: str) -> None:
        maps, name = self.store.resource("ConfigMap"), "mig-parted-config"
        obj = {"metadata": {"name": name}, "data": {"config.yaml": text}}
        if self.get("ConfigMap", name):
            self.store.update(maps, obj, namespace="gpu-operator")
        else:
            self.store.create(maps, obj, namespace="gpu-operator")

    def _note(self, event: object) -> None:
        state = event.object["metadata"].get("labels", {}).get(STATE)  # type: ignore[attr-defined]
        if not self.seen or self.seen[-1] != state:
            self.seen.append(state)

    def ask(self, layout: str) -> None:
        self.seen.clear()
        self.label("Node", NODE, **{CONFIG: layout})

    @property
    def labels(self) -> dict[str, str]:
        return self.the("Node", NODE)["metadata"]["labels"]

    @property
    def devices(self) -> dict[str, str]:
        return {k: v for k, v in self.the("Node", NODE)["status"]["allocatable"].items() if k.startswith("nvidia.com/")}

    def paused(self) -> bool:
        return all(self.labels[label] == PAUSED for label in DEPLOY)


@pytest.fixture
def gpu() -> MigWorld:
    world = MigWorld()
    world.pass_s(120)
    return world


def test_a_change(gpu: MigWorld) -> None:
    gpu.ask("all-1g.5gb")
    gpu.pass_s(3)
    assert gpu.seen == [None, "pending"]
    assert gpu.paused()
    assert gpu.devices == {"nvidia.com/gpu": "0"}  # the plugin is gone, so are its devices
    gpu.pass_s(22)
    assert gpu.seen == [None, "pending", "success"]
    assert all(gpu.labels[label] == "true" for label in DEPLOY)
    assert gpu.devices == {"nvidia.com/gpu": "0"}  # success comes before the resources
    gpu.pass_s(10)
    assert gpu.devices == {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "56"}
    assert "nvidia.com/mig-1g.5gb.count" not in gpu.labels  # and the resources before the labels
    gpu.pass_s(50)
    assert gpu.labels["nvidia.com/mig-1g.5gb.count"] == "56"
    assert gpu.labels["nvidia.com/mig-1g.5gb.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
    assert gpu.labels["nvidia.com/gpu.replicas"] == "0"
    assert gpu.labels["nvidia.com/gpu.count"] == "8"


def test_what_is_left_behind(gpu: MigWorld) -> None:
    for layout in ("all-1g.5gb", "all-3g.20gb"):
        gpu.ask(layout)
        gpu.pass_s(100)
    assert gpu.devices == {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "0", "nvidia.com/mig-3g.20gb": "16"}
    assert "nvidia.com/mig-1g.5gb.count" not in gpu.labels
    gpu.ask("half")
    gpu.pass_s(100)
    assert gpu.devices == {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.5gb": "28", "nvidia.com/mig-3g.20gb": "0"}
    assert gpu.labels["nvidia.com/gpu.replicas"] == "1"


def test_success_is_stale_until_the_manager_wakes(gpu: MigWorld) -> None:
    gpu.ask("all-1g.5gb")
    gpu.pass_s(100)
    gpu.ask("all-3g.20gb")
    gpu.pass_s(1)
    assert gpu.labels[STATE] == "success"
    gpu.pass_s(100)
    assert gpu.seen == ["success", "pending", "success"]


def test_what_is_applied_already_never_becomes_pending(gpu: MigWorld) -> None:
    gpu.ask("all-disabled")
    gpu.pass_s(60)
    assert gpu.seen == [None, "success"]


@pytest.mark.parametrize("layout", ["no-such-config", "broken"])
def test_an_unknown_name_or_a_broken_file_fails_before_anything_is_paused(gpu: MigWorld, layout: str) -> None:
    if layout == "broken":
        gpu.publish("version: v1\nmig-configs: {broken: [{devices: all}]}")
    gpu.ask(layout)
    gpu.pass_s(60)
    assert gpu.seen == [None, "failed"]
    assert all(gpu.labels[label] == "true" for label in DEPLOY)
    assert gpu.devices == {"nvidia.com/gpu": "8"}


def test_what_cannot_be_cut_fails_after_the_pause(gpu: MigWorld) -> None:
    gpu.ask("too-much")
    gpu.pass_s(60)
    assert gpu.seen == [None, "pending", "failed"]
    assert gpu.devices == {"nvidia.com/gpu": "8"}


def test_it_does_not_drain(gpu: MigWorld) -> None:
    gpu.create("Pod", {"metadata": {"name": "user"}, "spec": pod_template(gpus=1)["spec"]})
    gpu.pass_s(5)
    gpu.ask("all-1g.5gb")
    gpu.pass_s(60)
    assert gpu.seen == [None, "pending", "failed"]
    assert gpu.the("Pod", "user")["status"]["phase"] == "Running"
    assert gpu.devices == {"nvidia.com/gpu": "8"}
    gpu.delete("Pod", "user")
    gpu.pass_s(5)
    gpu.ask("all-disabled")
    gpu.pass_s(5)
    gpu.ask("all-1g.5gb")  # the same value again is no change: away and back
    gpu.pass_s(60)
    assert gpu.devices["nvidia.com/mig-1g.5gb"] == "56"


def test_a_client_that_does_not_stop_wedges_the_node(gpu: MigWorld) -> None:
    gpu.sim.mig_manager.hanging.add(NODE)
    gpu.ask("all-1g.5gb")
    gpu.pass_s(4000)
    assert gpu.seen == [None, "pending"]
    assert gpu.paused()
    assert gpu.devices == {"nvidia.com/gpu": "0"}
    # A value that is applied already is judged a success, and the node stays paused: state alone proves nothing.
    gpu.ask("all-disabled")
    gpu.pass_s(60)
    assert gpu.seen == ["pending", "success"]
    assert gpu.paused()
    gpu.sim.mig_manager.hanging.clear()
    gpu.label("Node", NODE, **dict.fromkeys(DEPLOY, "true"))
    gpu.ask("all-1g.5gb")
    gpu.pass_s(60)
    assert gpu.labels[STATE] == "success"
    assert gpu.devices["nvidia.com/mig-1g.5gb"] == "56"


def test_a_label_from_birth_is_applied() -> None:
    gpu = MigWorld(layout="all-1g.5gb")
    gpu.pass_s(120)
    assert gpu.seen[-2:] == ["pending", "success"]
    assert gpu.devices == {"nvidia.com/mig-1g.5gb": "56"}


def test_a_disabled_part_stays_disabled(gpu: MigWorld) -> None:
    gpu.label("Node", NODE, **{DEPLOY[3]: "false"})
    gpu.ask("all-1g.5gb")
    gpu.pass_s(100)
    assert gpu.labels[DEPLOY[3]] == "false"


def test_a_changed_file_is_not_read_until_the_label_changes(gpu: MigWorld) -> None:
    gpu.ask("half")
    gpu.pass_s(100)
    gpu.publish(FILE.replace("devices: [0, 1, 2, 3], mig-enabled: false", "devices: [0], mig-enabled: false"))
    gpu.pass_s(300)
    assert gpu.devices["nvidia.com/gpu"] == "4"


def test_a_layout_published_under_a_new_name_is_what_gets_applied(gpu: MigWorld) -> None:
    gpu.publish(FILE + "  team-a-4f2: [{devices: [0], mig-enabled: true, mig-devices: {2g.10gb: 3, 1g.5gb: 1}}]\n")
    gpu.ask("team-a-4f2")
    gpu.pass_s(100)
    assert gpu.devices == {"nvidia.com/gpu": "7", "nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-2g.10gb": "3"}


def test_a_change_during_a_change_comes_after_it(gpu: MigWorld) -> None:
    gpu.ask("all-1g.5gb")
    gpu.pass_s(5)
    gpu.label("Node", NODE, **{CONFIG: "all-3g.20gb"})
    gpu.pass_s(150)
    assert gpu.seen == [None, "pending", "success", "pending", "success"]
    assert gpu.devices["nvidia.com/mig-3g.20gb"] == "16"


def test_a_change_of_the_mode_may_need_a_reboot() -> None:
    gpu = MigWorld(reboot_on_mode_change=True, reboot_s=300.0)
    gpu.pass_s(120)
    gpu.ask("all-1g.5gb")
    gpu.pass_s(60)
    assert gpu.seen == [None, "pending", "rebooting"]
    gpu.pass_s(100)
    assert gpu.condition("Node", NODE, "Ready")[0] == "Unknown"
    gpu.pass_s(400)
    assert gpu.seen == [None, "pending", "rebooting", "pending", "success"]
    assert gpu.condition("Node", NODE, "Ready")[0] == "True"
    assert gpu.devices["nvidia.com/mig-1g.5gb"] == "56"


def test_a_node_replaced_under_its_name_starts_uncut(gpu: MigWorld) -> None:
    gpu.ask("all-1g.5gb")
    gpu.pass_s(100)
    gpu.machines.set("i-1", state="terminated")
    gpu.pass_s(60)
    gpu.machines.machines.clear()
    gpu.machine("i-2")
    gpu.machines.set("i-2", private_dns=NODE)
    gpu.pass_s(120)
    assert gpu.devices == {"nvidia.com/gpu": "8"}
    assert STATE not in gpu.labels


def test_the_recorded_sequences_are_reproduced() -> None:
    """Every sequence in the reference data that this manager can be put through."""
    recorded = json.loads(shared_path("data/test_vectors.json").read_text())["mig_manager_protocol"]
    by_action = {vector["action"]: [step.split(" ")[0] for step in vector["sequence"]] for vector in recorded}
    gpu = MigWorld(layout="all-1g.5gb")
    gpu.pass_s(200)
    gpu.ask("all-3g.20gb")
    gpu.pass_s(100)
    assert gpu.seen == by_action["set mig.config=all-3g.40gb"]
    gpu.ask("nope")
    gpu.pass_s(100)
    assert gpu.seen[1:] == by_action["unknown config name"]


@pytest.mark.parametrize(("name", "state"), [("all-disabled", "success"), ("all-enabled", "success"), ("x", "failed")])
def test_without_a_config_map_the_manager_has_a_file_of_its_own(name: str, state: str) -> None:
    gpu = MigWorld(config_map=("gpu-operator", "nobody-wrote-it"))
    gpu.pass_s(120)
    gpu.ask(name)
    gpu.pass_s(120)
    assert gpu.labels[STATE] == state


# Faults


def fault(gpu: MigWorld, **body: object) -> None:
    gpu.sim.mig_manager.cause(read_mig_fault({"node": NODE, **body}))


def cut_one(gpu: MigWorld) -> None:
    gpu.ask("all-1g.5gb")
    gpu.pass_s(120)
    assert gpu.devices == {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "56"}


def test_a_client_that_hangs_until_it_does_not(gpu: MigWorld) -> None:
    fault(gpu, hang=True)
    gpu.ask("all-1g.5gb")
    gpu.pass_s(1000)
    assert gpu.seen == [None, "pending"]
    assert gpu.paused()
    fault(gpu, hang=False)
    fault(gpu, restart=True)
    gpu.pass_s(100)
    assert gpu.labels[STATE] == "success"
    assert gpu.devices["nvidia.com/mig-1g.5gb"] == "56"


def test_as_many_changes_fail_as_were_asked_for(gpu: MigWorld) -> None:
    fault(gpu, fail=2)
    for layout, state in (("all-1g.5gb", "failed"), ("all-3g.20gb", "failed"), ("half", "success")):
        gpu.ask(layout)
        gpu.pass_s(100)
        assert gpu.seen[-2:] == ["pending", state]
        assert all(gpu.labels[label] == "true" for label in DEPLOY)


def test_what_is_forgotten_is_not_told(gpu: MigWorld) -> None:
    cut_one(gpu)
    fault(gpu, forget=True)
    gpu.pass_s(100)
    assert gpu.labels[STATE] == "success"
    assert gpu.devices == {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.5gb": "0"}


@pytest.mark.parametrize(
    ("value", "configured", "states"),
    [
        (True, False, ["success", "pending", "success"]),
        (True, True, ["success"]),
        ("keeps", False, ["success"]),
        ("loses", True, ["success", "pending", "success"]),
    ],
)
def test_a_reboot_loses_nothing_or_everything(value: object, configured: bool, states: list[str]) -> None:
    gpu = MigWorld(reboot_keeps_the_cut=configured, reboot_s=60.0)
    gpu.pass_s(120)
    cut_one(gpu)
    gpu.seen.clear()
    fault(gpu, reboot=value)
    gpu.pass_s(50)
    assert not gpu.sim.health.of(NODE).reports
    gpu.pass_s(200)
    assert gpu.seen == states
    assert gpu.devices == {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "56"}


def test_a_restarted_manager_asserts_the_label_again(gpu: MigWorld) -> None:
    cut_one(gpu)
    gpu.seen.clear()
    fault(gpu, forget=True)
    fault(gpu, restart=True)
    gpu.pass_s(100)
    assert gpu.seen == ["success", "pending", "success"]
    assert gpu.devices["nvidia.com/mig-1g.5gb"] == "56"


@pytest.mark.parametrize("after_s", [1, 3, 12])
def test_a_manager_restarted_in_the_middle_of_a_change_ends_it(gpu: MigWorld, after_s: float) -> None:
    gpu.ask("all-1g.5gb")
    gpu.pass_s(after_s)
    fault(gpu, restart=True)
    gpu.pass_s(120)
    assert gpu.labels[STATE] == "success"
    assert all(gpu.labels[label] == "true" for label in DEPLOY)
    assert gpu.devices["nvidia.com/mig-1g.5gb"] == "56"


def test_somebody_else_writes_the_label(gpu: MigWorld) -> None:
    cut_one(gpu)
    fault(gpu, relabel="all-disabled")
    gpu.pass_s(120)
    assert gpu.labels[CONFIG] == "all-disabled"
    assert gpu.devices["nvidia.com/gpu"] == "8"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"node": NODE},
        {"hang": True},
        {"node": NODE, "hang": 1},
        {"node": NODE, "hang": True, "fail": 1},
        {"node": NODE, "fail": -1},
        {"node": NODE, "reboot": "maybe"},
        {"node": NODE, "restart": False},
        {"node": NODE, "relabel": "a b"},
        {"node": NODE, "melt": True},
        {"node": "nobody", "hang": True},
    ],
)
def test_faults_that_there_are_none(gpu: MigWorld, body: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"give node|cannot be|no node"):
        gpu.sim.mig_manager.cause(read_mig_fault(body))


# Sharing

PUBLISHED = plugin_configs(
    [Sharing.model_validate({"timeSlicing": {"replicas": 4}}), Sharing.model_validate({"mps": {"replicas": 2}})]
)


def publish_sharing(gpu: MigWorld, configs: dict[str, str]) -> None:
    body = {"metadata": {"name": "muster-device-plugin-config"}, "data": configs}
    gpu.store.create(gpu.store.resource("ConfigMap"), body, namespace="gpu-operator")


@pytest.mark.parametrize(
    ("name", "published", "devices"),
    [
        ("time-slicing-4", PUBLISHED, {"nvidia.com/gpu": "32"}),
        ("mps-2", PUBLISHED, {"nvidia.com/gpu": "16"}),
        ("nobody-knows", PUBLISHED, {"nvidia.com/gpu": "0"}),
        (
            "mine",
            {"mine": "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 3}]}}"},
            {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "24"},
        ),
        ("mine", {"mine": "sharing: {mps: {resources: [{name: gpu, replicas: 1}]}}"}, {"nvidia.com/gpu": "0"}),
    ],
)
def test_how_gpus_are_shared(gpu: MigWorld, name: str, published: dict[str, str], devices: Obj) -> None:
    publish_sharing(gpu, published)
    gpu.label("Node", NODE, **{"nvidia.com/device-plugin.config": name})
    gpu.pass_s(120)
    assert gpu.devices == devices


def test_the_labels_of_a_shared_gpu(gpu: MigWorld) -> None:
    publish_sharing(gpu, PUBLISHED)
    gpu.label("Node", NODE, **{"nvidia.com/device-plugin.config": "mps-2"})
    gpu.pass_s(120)
    shown = {key.removeprefix("nvidia.com/"): text for key, text in gpu.labels.items()}
    assert (shown["gpu.product"], shown["gpu.replicas"]) == ("NVIDIA-A100-SXM4-40GB-SHARED", "2")
    assert (shown["gpu.sharing-strategy"], shown["mps.capable"]) == ("mps", "true")
