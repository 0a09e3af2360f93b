"""`Cluster`: which folders one cluster is made of, what is other there, and when its agent looks and acts."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from model.kinds.base import NEVER, Bool, Duration, Kind, Spec

INTERVAL_LEAST_S = 5.0
INTERVAL_MOST_S = 24 * 3600.0


def _check_path(text: str) -> str:
    if text.startswith(("/", "~")) or "://" in text or "\\" in text or not text.isprintable():
        raise ValueError("a path is relative to this file, with '/' between folders: nothing outside the repository")
    if any(part in {"", "."} or (part.startswith(".") and part != "..") for part in text.removesuffix("/").split("/")):
        raise ValueError("a path names each folder once, and none that begins with a dot: those are not read")
    return text.removesuffix("/")


def _often_enough(duration_s: float) -> float:
    if duration_s == NEVER or not INTERVAL_LEAST_S <= duration_s <= INTERVAL_MOST_S:
        raise ValueError("must be between 5s and 24h: an agent that never looks would not see this changed either")
    return duration_s


RelativePath = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_check_path)]


class ClusterSpec(Spec):
    """Bases, patches, and the schedule of the agent. Everything else in the folder of the file is the cluster's own."""

    bases: Annotated[tuple[RelativePath, ...], Field(max_length=50)] = ()
    """Folders of declarations that clusters share, from the folder of this file (`../../bases/gpu`)."""
    patches: Annotated[tuple[RelativePath, ...], Field(max_length=100)] = ()
    """Files of patches, from the folder of this file, applied in this order: each document changes what a base, or the
    cluster's own folder, declares with the same apiVersion, kind and name."""
    interval: Annotated[Duration, AfterValidator(_often_enough)] | None = None
    """How often the agent looks at the repository; unset = `source.pollIntervalS` of its settings."""
    suspend: Bool = False
    """Whether revisions stay out of force in this cluster: what is in force stays, until a revision says otherwise."""
    suspend_reason: Annotated[str, Field(max_length=256)] = ""
    """Why; the FleetSync says so."""

    @model_validator(mode="after")
    def _reason_of_something(self) -> Self:
        if self.suspend_reason and not self.suspend:
            raise ValueError("suspendReason is the reason of suspend: true, which is not given")
        return self


class Cluster(Kind):
    """One cluster of a repository that holds several; stands in a file `cluster.yaml`, alone."""

    plural: ClassVar[str] = "clusters"

    kind: Literal["Cluster"] = "Cluster"
    spec: ClusterSpec = ClusterSpec.unsaid()
