"""Rows of `device-plugin-sharing`: a configuration and the GPUs of a node -> labels, resources, whether it serves.

The rows were answered on a mock of NVML: every GPU has compute capability 8.0 there, whatever its name, and the
instances have no multiprocessors and no engines.
"""

from collections import Counter
from typing import Any

from providers.sim.controllers.gpus import PhysicalGpu, PluginFails, device_resources, discovery_labels
from providers.sim.controllers.sharing import InvalidPluginConfig, read_plugin_config
from providers.sim.machines import NodeShape
from tests.conformance.cases import Case

READ = {"id", "strategy", "config", "gpus", "labels", "resources", "plugin", "error", "note"}
STRATEGIES = {"none", "single", "mixed"}
MOCK_COMPUTE = (8, 0)
MOCK_HAS_NONE = ("multiprocessors", *(f"engines.{kind}" for kind in ("copy", "decoder", "encoder", "jpeg", "ofa")))
OTHERS = {"gfd.timestamp", "gpu.present", "mig.capable", "mps.capable"}
"""Labels of a node that the rows do not ask for: other parts of feature discovery write them."""


def run(case: Case) -> dict[str, Any]:
    """Labels, resources and `plugin` of the node, as feature discovery and the plugin of the sandbox see it."""
    if unknown := case.keys() - READ - {"suite", "kind", "asked", "expect"}:
        raise ValueError(f"unknown field {min(unknown)}")
    if case["strategy"] not in STRATEGIES:
        raise ValueError(f"unknown strategy {case['strategy']!r}")
    shape, gpus = _node(case["gpus"])
    try:
        sharing = read_plugin_config(case["config"])
    except InvalidPluginConfig:
        return {"plugin": "config refused"}
    labels = discovery_labels(shape, gpus, case["strategy"], sharing)
    kept = {name: text for name, text in (labels or {}).items() if name.partition("/")[2] not in OTHERS}
    try:
        resources = device_resources(shape, gpus, case["strategy"], sharing)
    except PluginFails:
        return {"plugin": "fails", "labels": kept, "resources": {}}
    return {"plugin": "serves", "labels": kept, "resources": resources}


def expected(case: Case) -> dict[str, Any]:
    """The row's answer: of why a plugin fails only that it does, since the words are from its source, not run."""
    answer = {key: case[key] for key in ("labels", "resources") if key in case}
    return answer | {"plugin": case["plugin"].partition(":")[0]}


def _node(said: list[dict[str, Any]]) -> tuple[NodeShape, tuple[PhysicalGpu, ...]]:
    """The machine of a row; its GPUs are all of one model, as on every machine there is."""
    (model,) = {(gpu["model"], gpu["mib"]) for gpu in said}
    attributes: dict[str, dict[str, int]] = {}
    for instance in (one for gpu in said for one in gpu["mig"] or ()):
        told = {"memory": instance["mib"], "slices.gi": instance["gi"], "slices.ci": instance["ci"]}
        attributes[instance["name"]] = {**told, **dict.fromkeys(MOCK_HAS_NONE, 0)}
    shape = NodeShape(
        capacity={},
        allocatable={},
        gpu_product=model[0],
        gpu_count=len(said),
        gpu_memory_mib=model[1],
        mig_capable=True,
        mig_attributes=attributes,
        compute_capability=MOCK_COMPUTE,
    )
    cut = (None if gpu["mig"] is None else Counter(one["name"] for one in gpu["mig"]) for gpu in said)
    return shape, tuple(PhysicalGpu(None if profiles is None else dict(profiles)) for profiles in cut)
