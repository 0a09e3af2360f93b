"""Cuts that fail again and again stop a pool: at most three machines are bought for them in six hours."""

from typing import Any

import pytest

from agent.simulation import Simulation, Tempo
from providers.sim.controllers import DevicePluginOptions, SimulationOptions
from providers.sim.controllers.gpus import Strategy
from providers.sim.controllers.mig_manager import read_mig_fault
from tests.agent.scenes import P4DE, Scene
from tests.agent.test_simulation_mig import mig, sliced

CALM = Tempo(slowest_tick_s=20.0, foresees=False)


class Trouble:
    """Gives it to every machine that joins, within ten seconds, while it lasts."""

    name = "trouble"

    def __init__(self, **trouble: object) -> None:
        self.sim: Simulation
        self.trouble = trouble
        self.lasts = True
        self._met: set[str] = set()
        self._looks_at_s = 0.0

    def step(self, now: float) -> float | None:
        if self.lasts and now >= self._looks_at_s:
            self._looks_at_s = now + 10
            for name in {node["metadata"]["name"] for node in self.sim.objects("Node")} - self._met:
                self._met.add(name)
                self.sim.mig_manager.cause(read_mig_fault({"node": name, **self.trouble}))
        return self._looks_at_s if self.lasts else None


def troubled(trouble: Trouble) -> Scene:
    """A gang that wants slices, of which all machines have trouble."""
    scene = Scene(tempo=CALM, more=[trouble])
    trouble.sim = scene.sim
    scene.sim.push(mig())
    scene.sim.submit(sliced("g"))
    return scene


def conditions(scene: Scene) -> dict[str, Any]:
    return {it["type"]: it for it in scene.sim.sync()["conditions"]}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [{"fail": 1000}, {"hang": True}], ids=["fail", "hang"])
def test_three_machines_in_six_hours(trouble: dict[str, object]) -> None:
    """Twelve were bought and thrown away."""
    scene = troubled(Trouble(**trouble))
    scene.sim.advance(5.5 * 3600)
    assert scene.bought(P4DE) == 3
    told = conditions(scene)["LayoutsFailing"]
    assert "mig-manager's log" in told["message"]
    gang = scene.sim.gang("g")
    assert gang is not None
    assert "could not be cut" in gang.message
    scene.sim.crash()
    scene.sim.restart()
    scene.sim.advance(600)
    assert scene.bought(P4DE) == 3


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["none", "single"])
def test_a_plugin_that_cannot_serve_slices(strategy: Strategy) -> None:
    options = SimulationOptions(device_plugin=DevicePluginOptions(strategy=strategy))
    scene = Scene(mig(), tempo=CALM, options=options)
    scene.sim.submit(sliced("g"))
    scene.sim.advance(2 * 3600)
    assert scene.bought(P4DE) == 3
    assert "mig.strategy=mixed" in conditions(scene)["LayoutsFailing"]["message"]


@pytest.mark.slow
def test_another_layout_ends_it() -> None:
    trouble = Trouble(fail=1000)
    scene = troubled(trouble)
    scene.sim.advance(2 * 3600)
    assert scene.bought(P4DE) == 3
    trouble.lasts = False
    scene.sim.push(mig(6))
    scene.until_running("g", 1800)
    scene.until(lambda: "LayoutsFailing" not in conditions(scene), 120, "the condition is gone")
