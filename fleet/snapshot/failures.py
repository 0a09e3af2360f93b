"""A decision that failed, as the object concerned tells of it (condition `DecisionFailed`)."""

from dataclasses import dataclass

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
