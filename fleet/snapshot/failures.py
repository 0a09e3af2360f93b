"""What failed, as the object concerned tells of it: a decision (`DecisionFailed`), a write (`WriteRefused`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from model.plain_text import plain


@dataclass(frozen=True, slots=True)
class DecisionFailure:
    """A `DecisionFailure` says why nothing could be decided about a gang or a machine: a defect of the agent."""

    error: str
    """Class of the exception."""
    cause: str
    """What it says of itself, short."""

    def __post_init__(self) -> None:
        """The words are plain here already, so that what the cluster shows of them compares equal to them."""
        object.__setattr__(self, "cause", plain(self.cause))


LAYOUTS: Final = "layouts"
"""Names the configuration of all MIG layouts, as a subject."""


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """A `WriteRefusal` says which write about a gang or a machine the API keeps refusing, and why."""

    reason: str
    """`Forbidden`, `Invalid`, `ServerError`, `PodDisruptionBudget`, ..."""
    message: str
    """Which write, and the API's own words."""

    def __post_init__(self) -> None:
        """The words are plain and short here already, so that what the cluster shows of them compares equal to them."""
        object.__setattr__(self, "message", plain(self.message)[:REFUSAL_MOST])


REFUSAL_MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class PublishedLayouts:
    """The `PublishedLayouts` are the GPU operator's configurations in the cluster, as this agent has written them."""

    config: str = ""
    at_s: float = 0.0
    """When it was last written."""
    carried: frozenset[str] = frozenset()
    """The configurations of before that were left in it, since nodes carried them."""
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Configurations of the device plugin by name, in a ConfigMap of their own."""
