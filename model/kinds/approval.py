"""Who has to agree to a revision: approvals of its pull request, owners of what it changes, checks of its plan."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, model_validator

from model.kinds.base import Name, NodeCount, Spec, Usd

OwnedKind = Literal[
    "NodePool", "NodeOverlay", "MigLayout", "Flavor", "Team", "Queue", "PriorityClass", "Topology", "ClusterQueue",
    "Cohort", "LocalQueue", "ResourceFlavor", "AdmissionCheck", "VolcanoQueue", "CapacityBuffer", "PodTemplate",
    "FleetPolicy", "Cluster",
]  # fmt: skip
"""A kind as addresses in plans name it; VolcanoQueue is Volcano's Queue."""
Person = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\s*?\[\]]+$")]
Pattern = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s\[\]]+$")]
People = Annotated[tuple[Person, ...], Field(max_length=100)]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=100)]


class ApprovalTolerance(Spec):
    """By how much the plan of the merge may be worse than the one that was approved."""

    nodes: NodeCount = 0
    """Nodes added, and nodes removed, beyond those approved."""
    usd_per_hour: Usd = 1.0
    """Cost beyond what was approved; spot prices move by cents all day."""
    gangs: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] = 0
    """Gangs stopped that the approved plan did not name."""


class ApprovalPolicy(Spec):
    """Approvals that the pull request of a revision needs. They are of a plan: one that is worse needs new ones."""

    required: Annotated[int, Strict(), Field(ge=0, le=10)] = 0
    """People beside its author who have to approve; who may push to the repository may."""
    tolerance: ApprovalTolerance = ApprovalTolerance.unsaid()
    """What may differ from the plan that was approved."""


class OwnerRule(Spec):
    """Who may change what. A field that is left out bounds nothing; a change needs one rule of somebody who agrees."""

    name: Name
    """Shown where an approval is missing."""
    users: People = ()
    """Names at the forge: who approves the pull request, or asks for it to come into force with `/muster approve`."""
    teams: People = ()
    """Teams at the forge (`ORGANISATION/TEAM`; a group's path at GitLab), whose members count."""
    signers: People = ()
    """Who signed the commit, as the list of signers names them."""
    kinds: Annotated[tuple[OwnedKind, ...], Field(max_length=len(OwnedKind.__args__))] = ()
    """Kinds of declarations."""
    names: Patterns = ()
    """Names of declarations, with `*` and `?`."""
    paths: Patterns = ()
    """Files they stand in, from the root of the fleet, with `*` and `?`; a `*` also takes in folders."""
    fields: Patterns = ()
    """Fields that may differ (`spec.quotas.*`), with `*` and `?`; with it nothing may be created or deleted."""
    max_percent: Annotated[int, Strict(), Field(ge=0, le=1000)] | None = None
    """By how much of its value before a number may differ; with it, nothing but numbers may, and nothing may be created
    or deleted."""

    @model_validator(mode="after")
    def _has_somebody(self) -> Self:
        if not (self.users or self.teams or self.signers):
            raise ValueError("nobody is named: users, teams or signers say who the owners are")
        return self


class PlanCheckTest(Spec):
    """A case for `muster policy test`: what a check says of a plan."""

    plan: dict[str, Any]
    """A plan as `muster plan --output json` writes it; what the check does not look at may be left out."""
    passes: Annotated[bool, Strict()]
    """Whether the check is to hold."""


class PlanCheck(Spec):
    """A rule that the plan of every revision has to keep, in the Common Expression Language (CEL)."""

    name: Name
    """Shown where it does not hold."""
    expression: Annotated[str, Field(min_length=1, max_length=2000)]
    """True where the plan is right; `plan` is what `muster plan --output json` writes."""
    message: Annotated[str, Field(min_length=1, max_length=500)]
    """Said where it does not hold."""
    action: Literal["Deny", "Warn"] = "Deny"
    """Deny: the revision does not come into force. Warn: the plan says so."""
    overrides: Annotated[tuple[Name, ...], Field(max_length=20)] = ()
    """Owner rules whose owners may agree to a revision that it denies."""
    tests: Annotated[tuple[PlanCheckTest, ...], Field(max_length=50)] = ()
    """Cases that hold as long as the rule says what is meant."""
