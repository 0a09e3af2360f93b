"""A decision that failed, as the object concerned tells of it (condition `DecisionFailed`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecisionFailure:
    """A `DecisionFailure` says why nothing could be decided about a gang or a machine: a defect of the agent."""

    error: str
    """Class of the exception."""
    cause: str
    """What it says of itself, short."""
