"""What the brain hears: everything the sources and workers have to say, as values on one queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.asked import Operated
from fleet.actions import Action
from fleet.plan import Plan
from fleet.plan.approvals import ApprovedPlan, GivenApproval
from fleet.snapshot import Catalog, Instance, LaunchOutcome, Notice, Reservation, Resolutions, WriteRefusal
from fleet.snapshot.gpus import GpuFault, GpuHolders, MeasuredUse
from model.fleet import Fleet
from model.problem import Problem
from providers.git.history import Lineage
from providers.kube.actuator import WrittenObject
from providers.kube.batches import Batch


@dataclass(frozen=True, slots=True)
class Observed:
    """A reflector's batch for one table of the mirror (`nodes`, `pods`, `jobs`, ...)."""

    table: str
    batch: Batch[Any]


@dataclass(frozen=True, slots=True)
class InstancesListed:
    """All instances of the cluster as the cloud lists them; `at_s` is when the listing began."""

    instances: Sequence[Instance]
    at_s: float


@dataclass(frozen=True, slots=True)
class ReservationsListed:
    """All capacity reservations the account may launch into; `at_s` is when the listing began."""

    reservations: Sequence[Reservation]
    at_s: float


@dataclass(frozen=True, slots=True)
class NamesResolved:
    """What images, subnets and security groups that pools name stand for was read (again)."""

    resolved: Resolutions


@dataclass(frozen=True, slots=True)
class Priced:
    """The catalogue was read (again)."""

    catalog: Catalog


@dataclass(frozen=True, slots=True)
class GpusRead:
    """dcgm-exporter was asked: what pods use (`namespace/pod`), faults and holders of GPUs (node), what is missing."""

    uses: Mapping[str, tuple[MeasuredUse, ...]]
    faults: Mapping[str, tuple[GpuFault, ...]]
    trouble: str = ""
    """Why some exporters did not answer, in words; empty where all did."""
    holders: Mapping[str, GpuHolders] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Noticed:
    """Interruption notices; acknowledged once what they lead to is written."""

    notices: Sequence[Notice]


@dataclass(frozen=True, slots=True)
class Pushed:
    """A revision of the fleet repository, read and (where asked) verified."""

    revision: str
    files: Mapping[str, bytes]
    signer: str | None = None
    restored: bool = False
    """It was in force before this process started: it has passed the guard rails already."""
    lineage: Lineage | None = field(default=None, compare=False, repr=False)
    """Tells which revisions it may follow; None: any."""
    confirms: frozenset[str] = frozenset()
    """The declarations (`nodepool/h100`) that its commit says may be deleted, though they want that confirmed."""
    author: str = ""
    """Who wrote the commit, as it says itself: a word that nobody vouches for."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What loading and planning a pushed revision came to: a fleet with its plan, or problems, or an error."""

    pushed: Pushed
    fleet: Fleet | None = None
    plan: Plan | None = None
    problems: tuple[Problem, ...] = ()
    error: Exception | None = None
    """What loading or planning raised that is no problem of the declarations."""


@dataclass(frozen=True, slots=True)
class RequestHandled:
    """The repository has been looked at since somebody asked for it; what was found stands before this in the queue."""

    request: str


@dataclass(frozen=True, slots=True)
class ReviewTrouble:
    """Why pull requests cannot be reviewed at present, in the forge's words; an empty message: they can be again."""

    message: str


@dataclass(frozen=True, slots=True)
class ApprovalsSeen:
    """Which approvals of open requests there are now, with the plans they are of."""

    approved: tuple[ApprovedPlan, ...]


@dataclass(frozen=True, slots=True)
class MergeApproved:
    """What the forge says of a commit that waits for approval: who approved what it merged."""

    commit: str
    given: tuple[GivenApproval, ...]
    words: str = ""
    """Why nobody can have approved it; empty where somebody could."""


@dataclass(frozen=True, slots=True)
class MergeSeen:
    """By which request a revision came, and by whose hands, as the forge says: for the records, not to decide by."""

    commit: str
    request: int
    merger: str = ""
    """Empty where the forge does not say."""
    approved_by: tuple[str, ...] = ()
    """Who approves its head, by name."""

    @property
    def words(self) -> str:
        """Returns it as a clause: `merged by grace, approved by ada, eve`."""
        merged = f"merged by {self.merger}" if self.merger else ""
        approved = f"approved by {', '.join(self.approved_by)}" if self.approved_by else ""
        return ", ".join(filter(None, (merged, approved)))


@dataclass(frozen=True, slots=True)
class SourceTrouble:
    """The repository could not be read; the last good revision stays in force."""

    message: str
    transient: bool


@dataclass(frozen=True, slots=True)
class SourceWell:
    """The repository can be read (again)."""


@dataclass(frozen=True, slots=True)
class RevisionLost:
    """The revision that was in force before this process cannot be so again."""

    revision: str
    why: str = ""
    """Why it is not trusted; empty where it is not in the repository any more."""

    @property
    def standing(self) -> tuple[str, str]:
        """Returns the outcome and its sentence."""
        if self.why:
            return "Untrusted", (
                f"{self.revision} was in force and cannot be verified: {self.why}. Nothing is decided without it. "
                "List who signed it, or delete the FleetSync and the agent's pod to begin with what is in the "
                "repository"
            )
        return "RevisionLost", (
            f"{self.revision}, the revision in force, is not in the repository any more; nothing is decided without "
            "it. Push it again, or delete the FleetSync and the agent's pod to begin with what is there"
        )


@dataclass(frozen=True, slots=True)
class TrustJudged:
    """Who vouches for the revision in force by the list of signers as it is now, or why nobody does any more."""

    revision: str
    signer: str
    distrust: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """An action is through."""

    action: Action
    written: tuple[WrittenObject, ...] = ()
    outcome: LaunchOutcome | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An action could not be carried out. `transient`: worth another try soon."""

    action: Action
    error: str
    transient: bool = True
    refusal: WriteRefusal | None = None
    """What there is to tell of it where the API has refused a write."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Observed
    | InstancesListed
    | ReservationsListed
    | NamesResolved
    | Priced
    | GpusRead
    | Noticed
    | Pushed
    | Planned
    | SourceTrouble
    | SourceWell
    | ReviewTrouble
    | ApprovalsSeen
    | MergeApproved
    | MergeSeen
    | RevisionLost
    | TrustJudged
    | Operated
    | RequestHandled
    | Done
    | Failed
    | Tick
)
