"""Machines, as far as quota decisions depend on them: behind one protocol, so that the engine runs with and without."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleet.reasons import Refusal

if TYPE_CHECKING:
    from fleet.quota.workload import AdmittedWorkload, PodSetAssignment, Workload


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """No place for these pod sets, and why."""

    pod_sets: tuple[str, ...]
    refusal: Refusal


class PlacementBackend(Protocol):
    """Where pods can stand. `put` and `lift`, `hold` and `release` undo each other exactly; `find` changes nothing.

    A place is opaque to the quota engine: what `find` returns is handed back to the others.
    """

    def find(
        self, workload: "Workload", given: Sequence["PodSetAssignment"], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        """A place for all pods as the ground stands, or as if no workload stood on it.

        Of a workload that stands there already, the pods that have a place keep it. `before` is a place found earlier
        in the cycle, which a ground may prefer as long as it is free.
        """

    def put(self, holder: "AdmittedWorkload") -> None:
        """Its pods stand where `holder.place` says."""

    def lift(self, holder: "AdmittedWorkload") -> None:
        """Its pods are gone."""

    def hold(self, workload: "Workload", place: object) -> None:
        """Keep the place from all others, although the workload does not stand there yet."""

    def release(self, workload: "Workload", place: object) -> None:
        """Undo `hold`."""


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """No machines: only quota counts."""

    def find(
        self, workload: "Workload", given: Sequence["PodSetAssignment"], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        """Nothing is ever in the way."""
        return None

    def put(self, holder: "AdmittedWorkload") -> None:
        """Nothing stands anywhere."""

    def lift(self, holder: "AdmittedWorkload") -> None:
        """Nothing stands anywhere."""

    def hold(self, workload: "Workload", place: object) -> None:
        """Nothing is kept."""

    def release(self, workload: "Workload", place: object) -> None:
        """Nothing was kept."""


NO_PLACEMENT = NoPlacement()
