"""A simulated cluster whose nodes are served by NVIDIA's DRA driver, and short words for claims."""

from pathlib import Path
from typing import Any

import yaml

from agent.clouds import DEFAULT, cloud_provider
from providers.sim.clouds import cloud_simulator
from providers.sim.controllers.dra.nvidia_driver import DYNAMIC, SERVED
from providers.sim.controllers.objects import condition_of
from providers.sim.shapes import can_be_cut, shapes_of
from tests.providers.sim.controllers.world import QUICK, ControllerWorld, Obj

SPECS = Path(__file__).parents[4] / "data" / "dra"
WITHOUT_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
CATALOGUE = shapes_of(cloud_provider(DEFAULT).catalog(cloud_simulator(DEFAULT).region))
MIG_FILE = """
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-enabled: [{devices: all, mig-enabled: true, mig-devices: {}}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  half-balanced:
  - {devices: [0, 1, 2, 3], mig-enabled: false}
  - {devices: [4, 5, 6, 7], mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}
"""


class ClaimWorld(ControllerWorld):
    """No nodes yet; the mig-parted file is there."""

    def __init__(self, options: Any = QUICK) -> None:
        super().__init__(options, feasible=can_be_cut, shape_of=CATALOGUE)
        self.create("Namespace", {"metadata": {"name": "gpu-operator"}})
        config = {"metadata": {"name": "mig-parted-config"}, "data": {"config.yaml": MIG_FILE}}
        self.store.create(self.store.resource("ConfigMap"), config, namespace="gpu-operator")

    def gpu_node(self, name: str = "n1", kind: str = "p4d.24xlarge", *, dynamic: bool = False, **labels: str) -> None:
        """A node with GPUs that the DRA driver serves and the device plugin does not; ready, its slices published."""
        given = {f"nvidia.com/{key.replace('_', '.')}": value for key, value in labels.items()}
        given |= {"node.kubernetes.io/instance-type": kind, SERVED: "true", WITHOUT_PLUGIN: "false"}
        given |= {DYNAMIC: "true"} if dynamic else {}
        self.node(name, labels=given, cpu="96", pods="100")
        self.pass_s(100)

    def apply(self, name: str) -> None:
        """Create everything in a file of specs."""
        for obj in yaml.safe_load_all((SPECS / f"{name}.yaml").read_text()):
            group = obj["apiVersion"].rpartition("/")[0]
            resource = self.store.resource(obj["kind"], group)
            self.store.create(resource, obj, namespace="default" if resource.namespaced else "")

    def template(self, name: str, *requests: Obj, **devices: Any) -> None:
        spec = {"spec": {"devices": {"requests": list(requests), **devices}}}
        self.create("ResourceClaimTemplate", {"metadata": {"name": name}, "spec": spec})

    def claim(self, name: str, *requests: Obj, **devices: Any) -> None:
        self.create(
            "ResourceClaim", {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests), **devices}}}
        )

    def pod_from(self, name: str, template: str, **given: Any) -> None:
        self.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}], **given)

    def pod_with(self, name: str, claim: str, **given: Any) -> None:
        self.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}], **given)

    def phase(self, pod: str) -> str:
        return str(self.the("Pod", pod)["status"]["phase"])

    def why(self, pod: str) -> str:
        """What the scheduler says of a pod that waits."""
        condition = condition_of(self.the("Pod", pod), "PodScheduled") or {}
        return str(condition.get("message", ""))

    def devices_of(self, pod: str) -> dict[str, list[str]]:
        """Claim of a pod -> the devices that it has."""
        held = self.the("Pod", pod)
        made = {it["name"]: it["resourceClaimName"] for it in held["status"].get("resourceClaimStatuses") or ()}
        named = {
            it["name"]: it.get("resourceClaimName") or made.get(it["name"]) for it in held["spec"]["resourceClaims"]
        }
        return {name: self.devices(claim) for name, claim in named.items() if claim}

    def devices(self, claim: str) -> list[str]:
        """The devices that a claim has."""
        allocation = self.the("ResourceClaim", claim).get("status", {}).get("allocation") or {"devices": {}}
        return [it["device"] for it in allocation["devices"].get("results") or ()]

    def slices(self, driver: str = "gpu.nvidia.com") -> list[Obj]:
        return [it["spec"] for it in self.all("ResourceSlice") if it["spec"]["driver"] == driver]

    def events(self, reason: str) -> list[str]:
        return [it["message"] for it in self.all("Event") if it["reason"] == reason]


def exactly(name: str = "gpu", device_class: str = "gpu.nvidia.com", *expressions: str, **wanted: Any) -> Obj:
    """A request for devices of a class, selected by CEL."""
    selectors = {"selectors": [{"cel": {"expression": it}} for it in expressions]} if expressions else {}
    return {"name": name, "exactly": {"deviceClassName": device_class, **selectors, **wanted}}
