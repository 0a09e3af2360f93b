"""`FleetPolicy`: what one revision may do at most, when nothing may happen, and what holds for all queues alike."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from model.cron import Cron
from model.kinds.approval import ApprovalPolicy, OwnerRule, PlanCheck
from model.kinds.base import NEVER, Bool, Duration, Kind, LabelKey, Name, NodeCount, Spec, Unlimited, Usd

Percent = Annotated[int, Strict(), Field(ge=0, le=100)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
GangCount = Annotated[int, Strict(), Field(ge=0, le=1_000_000)]


class DailyRails(Spec):
    """What all revisions of the last 24 hours may do together; each unset = twice what one of them may."""

    max_nodes_removed: NodeCount | Unlimited | None = None
    """Nodes that they remove."""
    max_percent_removed: Percent | Unlimited | None = None
    """The same, of the most nodes there were when any of them came into force; 100 at most."""
    max_nodes_added: NodeCount | Unlimited | None = None
    """Nodes that they add."""
    max_usd_per_hour_added: Usd | Unlimited | None = None
    """Cost that they add; what others of them save does not count."""
    max_gangs_evicted: GangCount | Unlimited | None = None
    """Gangs that they stop."""


class GuardRails(Spec):
    """A revision that would go beyond any of these is planned, shown and refused; the last good one stays in force.

    `Unlimited` lifts a rail: one that is not written has a bound that grows with the fleet.
    """

    max_nodes_removed: NodeCount | Unlimited | None = None
    """Unset = no bound beside `maxPercentRemoved`."""
    max_percent_removed: Percent | Unlimited = 30
    """Of the nodes that exist now; one node is always allowed."""
    max_nodes_replaced: NodeCount | Unlimited | None = None
    """Nodes that are replaced because of it; unset = no bound, as the budgets of the pools hold the pace."""
    max_nodes_added: NodeCount | Unlimited | None = None
    """Unset = 10, or as many as exist now if that is more."""
    max_usd_per_hour_added: Usd | Unlimited | None = None
    """Beyond the hourly prices of all nodes without it; unset = 250, or half of the present prices if that is more."""
    max_usd_per_hour_exposed: Usd | Unlimited | None = None
    """The most that the limits of all node pools together may let be spent; looked at where a revision raises that.
    Unset = 1000 more than before, or twice as much if that is more."""
    max_gangs_evicted: GangCount | Unlimited | None = None
    """Unset = 3, or a quarter of the gangs that run, rounded up, if that is more."""
    allow_empty_fleet: Bool = False
    """Whether a revision may leave no NodePool at all while machines run."""
    per_day: DailyRails = DailyRails.unsaid()
    """What all revisions of the last 24 hours may do together."""


class Signatures(Spec):
    """Which revisions are trusted. The signers, and what they must sign, are configured outside the repository."""

    required: Bool = False
    """Refuse revisions without a valid signature."""


def _known_zone(name: str) -> str:
    Cron.parse("@daily", name)
    return name


TimeZone = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_known_zone)]


class TimeWindow(Spec):
    """A stretch of time that comes again and again."""

    name: Name
    """Shown where it counts."""
    schedule: str
    """Cron (five fields) at which the window opens."""
    duration: Duration
    """How long the window stays open."""
    time_zone: TimeZone = "UTC"
    """Time zone of the schedule (`Europe/Berlin`)."""

    @property
    def opening(self) -> Cron:
        """When it opens. Errors: InvalidCron."""
        return Cron.parse(self.schedule, self.time_zone)


class FreezeWindow(TimeWindow):
    """A stretch of time in which the named activities stop."""

    blocks: Annotated[tuple[Literal["Sync", "Disruption"], ...], Field(min_length=1)] = ("Sync", "Disruption")
    """Sync: no new revision comes into force. Disruption: nothing voluntary happens to running nodes."""


class AllowWindow(TimeWindow):
    """A stretch of time outside of which the named activities stop; with several, outside of all of them."""

    allows: Annotated[tuple[Literal["Sync", "Disruption"], ...], Field(min_length=1)] = ("Sync", "Disruption")
    """As `blocks` of a freeze window. A freeze window that is open goes before."""


class NotificationSink(Spec):
    """Where the agent reports what becomes of revisions, evictions, shortages and interruptions."""

    name: Name
    """Tells sinks apart in logs and metrics."""
    type: Literal["Webhook", "Slack", "Teams", "PagerDuty"] = "Webhook"
    """Form of the message: a JSON object, a Slack message, a card for a workflow of Microsoft Teams, or an event of
    PagerDuty's Events API v2."""
    address_env: VariableName
    """The environment variable of the agent that holds the address, or the file of that name in its folder of
    addresses. Addresses are secrets and stay out of git."""
    secret_env: VariableName | Literal[""] = ""
    """The same for a secret: the key by which a Webhook's bodies are signed, or PagerDuty's routing key."""
    severity: Literal["Info", "Warning"] = "Warning"
    """Least severity that is sent. PagerDuty is sent warnings, and the end of each."""
    teams: tuple[Name, ...] = ()
    """Only news of these teams' work; none = all news, also of what is nobody's."""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type in ("Slack", "Teams") and self.secret_env:
            raise ValueError(f"secretEnv is of no use to {self.type}: its address is the secret")
        if self.type == "PagerDuty" and not self.secret_env:
            raise ValueError("PagerDuty needs secretEnv, the variable that holds its routing key")
        if self.type == "PagerDuty" and self.severity == "Info":
            raise ValueError("PagerDuty is sent warnings only, and the end of each: take severity out")
        return self


def _ends(duration_s: float) -> float:
    if duration_s == NEVER:
        raise ValueError("must end: usage that is never forgotten would never be counted anew either")
    return duration_s


def _passes(duration_s: float) -> float:
    if not 0 < duration_s < NEVER:
        raise ValueError("must be more than 0s, and not Never: usage is looked at this often")
    return duration_s


class PoolRollout(Spec):
    """In which order node pools take over what has changed about them: the first is the canary of those after it."""

    pools: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    """Machines of a pool begin to be replaced as drifted once none of the pools before it has any such left, and what
    was bought there is ready. Pools that are not named wait for nobody."""
    pause_on_failure: Bool = True
    """Whether nothing more is replaced in any of the pools once a new machine of one could not be launched, did not
    join or had to be repaired: until the pools declare something else, or this is `false`."""


class AdmissionFairSharing(Spec):
    """How the use of capacity is remembered, for queues that let those go first who used less lately.

    Names and meaning are those of `admissionFairSharing` in Kueue's Configuration.
    """

    usage_half_life_time: Annotated[Duration, AfterValidator(_ends)]
    """After this long half of what was used is forgotten; `0s`: only what is held at the last sample counts."""
    usage_sampling_interval: Annotated[Duration, AfterValidator(_passes)] = 300.0
    """How often what is held is looked at; an admission counts ahead for this long at once."""
    resource_weights: dict[LabelKey, Annotated[float, Strict(), Field(ge=0, le=1e6)]] = Field(default_factory=dict)
    """Resource -> what a unit counts (a core, a byte, a device; 0 = nothing); a resource not named counts 1 a unit."""


class FleetPolicySpec(Spec):
    """Guard rails, signatures, approvals, owners, freeze windows, notification sinks, and how use is remembered."""

    guard_rails: GuardRails = GuardRails.unsaid()
    """What one revision may change at most."""
    signatures: Signatures = Signatures.unsaid()
    """Which revisions are trusted."""
    approvals: ApprovalPolicy = ApprovalPolicy.unsaid()
    """Which approvals a pull request needs before its merge comes into force."""
    owners: Annotated[tuple[OwnerRule, ...], Field(max_length=100)] = ()
    """Who may change what; none = whoever can push to the branch. With any, a change that no rule covers is refused."""
    checks: Annotated[tuple[PlanCheck, ...], Field(max_length=50)] = ()
    """Rules of your own for the plan of each revision."""
    freeze_windows: tuple[FreezeWindow, ...] = ()
    """When nothing may change."""
    allow_windows: tuple[AllowWindow, ...] = ()
    """When alone something may change; none = always."""
    rollout: PoolRollout | None = None
    """In which order node pools take over what has changed about them; unset = all at once, within their budgets."""
    notifications: tuple[NotificationSink, ...] = ()
    """Who is told."""
    purchases: Literal["Optimal", "Greedy"] = "Optimal"
    """How the machines for what waits are chosen: by search with a bound on what could be saved, or by rules alone."""
    usd_per_hour_per_machine: Annotated[float, Strict(), Field(ge=0, le=1000, allow_inf_nan=False)] = 0.02
    """What a machine costs beside its price (root volume, public address, agents' licences), reckoned with where
    machines are chosen and replaced: of equal prices fewer machines are bought. Neither bills nor limits count it. The
    default is that of a volume of 100 GiB (gp3, 0.011) and a public address (0.005), and a little for agents."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """How the use of capacity is remembered where it orders a queue; unset = it is not."""
    allow_unknown: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], Field(max_length=100)
    ] = ()
    """Names of instance types, families, GPU models, zones, labels and resources that are right though they look
    misspelt or are newer than the catalogue: each is taken as it is."""


class FleetPolicy(Kind):
    """The rules for changing the fleet; at most one in a repository."""

    plural: ClassVar[str] = "fleetpolicies"

    kind: Literal["FleetPolicy"] = "FleetPolicy"
    spec: FleetPolicySpec = FleetPolicySpec.unsaid()
