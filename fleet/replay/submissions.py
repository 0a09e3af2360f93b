"""Defines what a replay plays: gangs as they were submitted, with what was known then, and how long each has run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.cost.lost_work import devices_of
from fleet.snapshot import Job, JobRef, PodSet
from model.quantity import Resources


@dataclass(frozen=True, slots=True)
class PodShape:
    """A `PodShape` is a number of equal pods of a submitted gang: what one asks for (canonical), and which nodes."""

    count: int
    requests: Resources
    selector: Mapping[str, str] = field(default_factory=dict)
    """Node labels that the pods select."""
    name: str = "main"


@dataclass(frozen=True, slots=True)
class SubmittedGang:
    """A `SubmittedGang` is one unit of work as the record or a trace has it. Seconds; `submitted_s` since the epoch."""

    name: str
    """Unique within its namespace and replay."""
    namespace: str
    queue: str
    submitted_s: float
    run_s: float
    """How long it runs once all of its pods are ready; nobody who decides knows it."""
    shapes: tuple[PodShape, ...]
    priority_class: str = ""
    expected_run_s: float | None = None
    """What its user had said of that, which deciders do know."""
    checkpoint_interval_s: float | None = None
    """Seconds between its checkpoints; None = it makes none, and an eviction loses all it has done."""

    @property
    def uid(self) -> str:
        """Returns the uid of its job in the virtual world."""
        return f"{self.namespace}/{self.name}"

    @property
    def gpus(self) -> int:
        """Returns how many GPUs or slices all of its pods ask for."""
        return sum(devices_of(shape.requests) * shape.count for shape in self.shapes)

    def job(self) -> Job:
        """Returns the job that arrives: suspended, in its queue, saying no more than its user had said."""
        sets = (PodSet(it.name, it.count, it.requests, it.selector, namespace=self.namespace) for it in self.shapes)
        return Job(
            JobRef("batch/v1", "Job", self.namespace, self.name, self.uid),
            "1",
            self.queue,
            self.priority_class,
            True,
            tuple(sets),
            self.submitted_s,
            expected_run_s=self.expected_run_s,
            checkpoint_interval_s=self.checkpoint_interval_s,
        )
