"""The simulated world: everything around the agent, in this process, over real HTTP."""

import contextlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog
import yaml

from agent.clouds import DEFAULT, cloud_provider
from agent.sandbox.pace import MIG_CONFIG_MAP, SandboxPace
from providers.clock import Clock, SystemClock
from providers.sim.apiserver.server import ApiServer
from providers.sim.clouds import cloud_simulator
from providers.sim.controllers.assembly import SimulatedCluster, assemble
from providers.sim.controllers.dcgm_exporter import read_gpu_trouble
from providers.sim.controllers.dra.nvidia_driver import read_dra_fault
from providers.sim.controllers.mig_manager import read_mig_fault
from providers.sim.controllers.upkeep import Upkeep
from providers.sim.kernel import KernelThread
from providers.sim.shapes import can_be_cut, shapes_of
from providers.sim.store import LATEST, Store, StoreAlreadyExists

log = structlog.get_logger(__name__)


def shipped_policies() -> Iterator[dict[str, Any]]:
    """The admission policies and bindings that a cluster gets, from the very files that are applied there."""
    folder = _shipped()
    for name in yaml.safe_load(folder.joinpath("kustomization.yaml").read_text("utf-8"))["resources"]:
        yield from yaml.safe_load_all(folder.joinpath(name).read_text("utf-8"))


def _shipped() -> Traversable:
    """Part of the package where it is installed, beside it in a checkout."""
    packed = files("agent").joinpath("sandbox", "admission-policy")
    return packed if packed.is_dir() else Path(str(files("agent"))).parent / "deploy/components/admission-policy"


NAMESPACES = ("muster-system", MIG_CONFIG_MAP[0], "prod", "research", "batch")

SERVED_BETAS = ("resource.k8s.io/v1beta2",)
"""Switched on, so that DeviceTaintRules can be tried."""


class SandboxWorld:
    """API server, cloud and controllers; a context manager. Nothing listens beyond this machine."""

    def __init__(
        self,
        folder: Path,
        *,
        cluster: str,
        speed: float,
        api_port: int = 0,
        clock: Clock | None = None,
        consumable_shares: str = "",
    ) -> None:
        self.clock = clock or SystemClock()
        self.folder = folder
        self.cluster = cluster
        pace, self.simulator = SandboxPace(speed, consumable_shares), cloud_simulator(DEFAULT)
        catalog = cloud_provider(DEFAULT).catalog(self.simulator.region)
        self.store = Store(self.clock, release=LATEST.with_betas(*SERVED_BETAS))
        self.api = ApiServer(self.store, port=api_port, clock=self.clock)
        self.cloud = self.simulator.served(catalog, self.clock, cluster, pace.timings())
        self.simulation: SimulatedCluster = assemble(
            self.store,
            self.clock,
            machines=self.cloud,
            shape_of=shapes_of(catalog),
            feasible=can_be_cut,
            options=pace.controllers(self.cloud),
            more=[Upkeep(self.store)],
        )
        self.cloud.also("mig", lambda body: self.simulation.mig_manager.cause(read_mig_fault(body)))
        driver = self.simulation.dra_driver
        if driver is not None:
            self.cloud.also("dra", lambda body: driver.cause(read_dra_fault(body)))
        self._exporters = self.simulation.exporters
        if (exporters := self._exporters) is not None:
            self.cloud.also("gpu", lambda body: exporters.cause(read_gpu_trouble(body)))
        self._kernel: KernelThread | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open.callback(self.cloud.stop)
        self.cloud.start()
        self._open.callback(self.api.stop)
        self.api.start()
        if self._exporters is not None:
            self._open.enter_context(self._exporters.server)
        namespaces = self.store.resource("Namespace")
        for name in NAMESPACES:
            with contextlib.suppress(StoreAlreadyExists):
                self.store.create(namespaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.store.create(self.store.resource("StorageClass"), dict(self.simulator.storage_class))
        for policy in shipped_policies():
            self.store.create(self.store.resource(policy["kind"]), policy)
        self._kernel = self.simulation.in_real_time(on_error=_report)
        self._open.enter_context(self._kernel)
        self.api.kubeconfig(self.kubeconfig)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def kubeconfig(self) -> Path:
        """The file that kubectl and the agent use."""
        return self.folder / "kubeconfig"


def _report(error: Exception) -> None:
    log.error("simulation_fault", error=f"{type(error).__name__}: {error}")
