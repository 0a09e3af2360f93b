"""The stage of the simulation tests: a small fleet in the words of YAML, jobs, and a world that is quick to boot."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from agent.demo.jobs import Manifest, job, training
from agent.simulation import Moment, Simulation, Tempo
from fleet.snapshot import CapacityPool, Catalog
from model.kinds import CapacityType
from providers.aws.catalog import package_catalog
from providers.sim.ec2.market import PoolFilter
from tests.support.invariants import Invariants

P5, P4DE, G6, G5 = "p5.48xlarge", "p4de.24xlarge", "g6.12xlarge", "g5.12xlarge"
A, B, C, D = "us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"
_SOLD = frozenset({P5, P4DE, G6, G5, "c6i.xlarge", "m6i.xlarge", "r6i.xlarge"})
Doc = dict[str, Any]
DOWN_S = 3.0
"""How long a dead agent stays dead."""


def sold(*more: str) -> Catalog:
    """The package's catalogue, of four types with GPUs and three without, and of `more`; of p4d it has heard."""
    whole = package_catalog("us-east-1").catalog
    types = {*_SOLD, *more}
    return replace(
        whole,
        types={name: kind for name, kind in whole.types.items() if name in {*types, "p4d.24xlarge"}},
        offers=tuple(offer for offer in whole.offers if offer.instance_type.name in types),
    )


CATALOG = sold()


def doc(kind: str, name: str, **spec: Any) -> Doc:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pool(name: str = "h100", types: tuple[str, ...] = (P5,), **spec: Any) -> Doc:
    """A pool that gives idle machines back after a minute and may lose all of them at once, unless told otherwise."""
    defaults = {
        "instanceTypes": list(types),
        "zones": [A, B],
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]},
    }
    return doc("NodePool", name, **defaults | spec)


def team(name: str = "t", quotas: Mapping[str, Mapping[str, Any]] | None = None, **spec: Any) -> Doc:
    cells = {"h100": {"nvidia.com/gpu": 32}} if quotas is None else quotas
    full = {flavor: q if "guaranteed" in q else {"guaranteed": q} for flavor, q in cells.items()}
    return doc("Team", name, **{"namespaces": [name], "quotas": full} | spec)


def queue(name: str = "t", flavors: tuple[str, ...] = ("h100",), **spec: Any) -> Doc:
    return doc("Queue", name, **{"team": name, "flavors": list(flavors)} | spec)


def layout(name: str, model: str = "a100-80gb", **profiles: int) -> Doc:
    cut = {profile.replace("_", "."): count for profile, count in profiles.items()}
    return doc("MigLayout", name, models={model: [{"devices": "all", "profiles": cut}]})


PRIORITIES = [doc("PriorityClass", "high", value=1000), doc("PriorityClass", "normal", value=100)]


def files(*docs: Doc) -> dict[str, str]:
    """A repository of one file."""
    return {"fleet.yaml": yaml.safe_dump_all([*PRIORITIES, *docs], sort_keys=False)}


def simple(**spec: Any) -> dict[str, str]:
    """One pool of `p5.48xlarge`, one team with four machines' worth of quota, one queue."""
    return files(pool(**spec), team(), queue())


def gpu_job(
    name: str, *, pods: int = 1, gpus: int = 8, namespace: str = "t", priority: str = "normal", **more: Any
) -> Manifest:
    """A Job of `pods` pods with whole GPUs."""
    return job(name, namespace, priority, pods=pods, requests={"nvidia.com/gpu": str(gpus)}, **more)


def gpu_jobset(
    name: str, *, workers: int = 2, gpus: int = 8, namespace: str = "t", priority: str = "normal"
) -> Manifest:
    """A JobSet of `workers` pods that must share a zone."""
    return training(name, namespace, priority, workers=workers, gpus=gpus)


class Scene:
    """A simulation with its invariants and short words for what the tests say."""

    def __init__(
        self,
        fleet: Mapping[str, str] | None = None,
        *,
        tempo: Tempo | None = None,
        catalog: Catalog = CATALOG,
        **options: Any,
    ) -> None:
        self.sim = Simulation(catalog=catalog, tempo=tempo, **options)
        self.laws = Invariants(self.sim)
        self.market = self.sim.market
        self.faults = self.sim.market.faults
        if fleet is not None:
            self.sim.push(fleet)
            self.sim.advance(1)

    # -- doing --

    def short(
        self, kind: str = P5, zone: str | None = None, capacity: CapacityType | None = None, *, on: bool = True
    ) -> None:
        self.market.set_shortage(PoolFilter(capacity, kind, zone), on=on)

    def capacity(
        self, machines: int | None, kind: str = P5, zone: str = A, capacity: CapacityType = "on-demand"
    ) -> None:
        self.market.set_capacity(CapacityPool(capacity, kind, zone), machines)

    def lies(self, kind: str = P5, zone: str | None = None) -> None:
        self.market.set_lying(PoolFilter(None, kind, zone))

    def runs(self, manifest: Manifest, within_s: float = 600) -> None:
        """Submit and wait until all pods are ready."""
        self.sim.submit(manifest)
        self.until_running(manifest["metadata"]["name"], within_s)

    # -- waiting --

    def until(self, holds: Any, within_s: float = 600, words: str = "") -> None:
        reached = self.sim.advance_until(holds, within_s)
        assert reached, f"{words or 'it'} did not come true in {within_s} s; {self.story()}"

    def until_running(self, name: str, within_s: float = 600) -> None:
        self.until(lambda: self.sim.running(name), within_s, f"{name} runs")

    def until_state(self, name: str, state: str, within_s: float = 600) -> None:
        self.until(lambda: self.state(name) == state, within_s, f"{name} is {state}")

    def settle(self, seconds: float = 120, *, settled: bool = True) -> None:
        """Let time pass, then everything must be in order."""
        self.sim.advance(seconds)
        self.laws.check(settled=settled)

    # -- looking --

    def state(self, name: str) -> str:
        gang = self.sim.gang(name)
        return str(gang.state) if gang else ""

    def bought(self, kind: str = "", zone: str = "", capacity: str = "") -> int:
        """How many machines were ever bought."""
        return len(
            [
                entry
                for entry in self.sim.cloud.ledger()
                if kind in ("", entry.pool.instance_type)
                and zone in ("", entry.pool.zone)
                and capacity in ("", entry.pool.capacity_type)
            ]
        )

    def zones(self) -> set[str]:
        """Zones in which machines run now."""
        return {machine.zone for machine in self.sim.machines()}

    def nodes_of(self, name: str) -> set[str]:
        gang = self.sim.gang(name)
        return {pin.node for pin in gang.pins} if gang else set()

    def story(self) -> str:
        """How things stand, for a failure's message."""
        gangs = [f"{g.job.name} {g.state} {g.reason}: {g.message}" for g in self.sim.gangs().values()]
        claims = [f"{c.name} {c.state} {c.disruption}" for c in self.sim.claims().values()]
        return "\n".join(
            [*gangs, *claims, f"{len(self.sim.machines())} machines", str(self.sim.sync().get("problems"))]
        )


class Nurse:
    """Starts a dead agent again after a while, and lights the next fuse."""

    name = "nurse"

    def __init__(self, every: int = 0, moment: Moment = "before", rng: random.Random | None = None) -> None:
        self.sim: Simulation
        self.every = every
        self.moment = moment
        self.rng = rng
        self.deaths = 0
        self._up_at_s: float | None = None

    def step(self, now: float) -> float | None:
        if self.sim.alive:
            return None
        if self._up_at_s is None:
            self.deaths += 1
            self._up_at_s = now + DOWN_S
        if now < self._up_at_s:
            return self._up_at_s
        self._up_at_s = None
        self.sim.restart()
        self.light()
        return now + 0.001  # the agent's turn comes with the next instant

    def light(self) -> None:
        if self.every:
            steps = self.rng.randrange(1, 2 * self.every) if self.rng else self.every
            moment = self.rng.choice(["before", "after"]) if self.rng else self.moment
            self.sim.crash_at(self.sim.writes + steps, moment)  # type: ignore[arg-type]
