"""`mig-manager-protocol`: the order of label writes of mig-manager, played on the simulated cluster.

Each change of the label in the recording is made at its second; what the simulated manager then writes is noted as the
recorder did it. The recording was made with Muster's ConfigMap: a name that ends in a hash is in the file, another is
not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from providers.sim.controllers import MigOptions
from providers.sim.controllers.mig_manager import CONFIG, STATE
from tests.conformance.cases import Case
from tests.providers.sim.controllers.world import QUICK, ControllerWorld

READ = {"id", "recorded_from", "columns", "observed", "facts"}
COLUMNS = ["seconds", CONFIG, STATE, "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.nvsm"]
NODE = "i-1.ec2.internal"
IN_THE_FILE = re.compile(r".+-[0-9a-f]{8}")
LAYOUTS = ({"1g.5gb": 7}, {"3g.20gb": 2})
"""Each name of the recording is a change, so that neighbours are cut differently."""
SETTLED_S, APPLY_S = 120.0, 2.0


def rows(stem: str, document: Mapping[str, Any]) -> Iterator[Case]:
    """The recording as one row."""
    yield {"id": stem, **document}


def expected(case: Case) -> list[list[str]]:
    """What was seen, without the seconds: how fast the manager is, is an option of ours."""
    return [list(row[1:]) for row in case["observed"]]


def run(case: Case) -> list[list[str]]:
    """What is seen of the simulated manager."""
    if unknown := case.keys() - READ - {"suite", "kind", "asked", "expect"}:
        raise ValueError(f"unknown field {min(unknown)}")
    if case["columns"] != COLUMNS:
        raise ValueError(f"columns are {case['columns']}")
    asked: list[tuple[float, str]] = []
    for seconds, config, *_ in case["observed"]:
        if not asked or asked[-1][1] != config:
            asked.append((float(seconds), config))
    world = _world([config for _, config in asked])
    seen: list[list[str]] = []
    store = world.store
    store.subscribe(lambda event: _note(seen, event.object), resource=store.resource("Node"))
    start_s = world.now
    for at_s, config in asked:
        world.pass_s(max(0.0, start_s + at_s - world.now))
        world.label("Node", NODE, **{CONFIG: config})
    world.pass_s(SETTLED_S)
    return seen


def _world(configs: list[str]) -> ControllerWorld:
    """One node with eight GPUs whose manager has nothing to do yet."""
    mig = MigOptions(first_delay_s=10.0, wake_s=0.0, client_stop_s=1.0, apply_s=APPLY_S)
    world = ControllerWorld(replace(QUICK, mig=mig))
    known = {name: LAYOUTS[index % 2] for index, name in enumerate(filter(IN_THE_FILE.fullmatch, configs))}
    file = {
        "version": "v1",
        "mig-configs": {
            name: [{"devices": "all", "mig-enabled": True, "mig-devices": profiles}] for name, profiles in known.items()
        },
    }
    world.create("Namespace", {"metadata": {"name": "gpu-operator"}})
    config_map = {"metadata": {"name": "mig-parted-config"}, "data": {"config.yaml": yaml.safe_dump(file)}}
    world.store.create(world.store.resource("ConfigMap"), config_map, namespace="gpu-operator")
    world.machine("i-1")
    world.pass_s(SETTLED_S)
    return world


def _note(seen: list[list[str]], node: Mapping[str, Any]) -> None:
    labels = node["metadata"].get("labels") or {}
    row = [str(labels.get(column)) for column in COLUMNS[1:]]
    if not seen or seen[-1] != row:
        seen.append(row)
