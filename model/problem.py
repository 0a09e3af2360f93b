"""`Problem`: what is wrong with a fleet repository, where, and what would fix it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

Severity = Literal["error", "warning"]


class Code(StrEnum):
    """What kind of thing is wrong; stable, so that tools may filter by it."""

    ENCODING = "encoding"
    YAML_SYNTAX = "yaml-syntax"
    DUPLICATE_KEY = "duplicate-key"
    TOO_LARGE = "too-large"
    NOT_A_DECLARATION = "not-a-declaration"
    UNKNOWN_KIND = "unknown-kind"
    NOT_READ_YET = "not-read-yet"
    NOT_READ = "not-read"
    UNSUPPORTED = "unsupported"
    UNKNOWN_KEY = "unknown-key"
    MISSING_KEY = "missing-key"
    INVALID_VALUE = "invalid-value"
    DUPLICATE_NAME = "duplicate-name"
    DANGLING_REFERENCE = "dangling-reference"
    CYCLE = "cycle"
    NAMESPACE_CLAIMED_TWICE = "namespace-claimed-twice"
    QUOTA_WITHOUT_CAPACITY = "quota-without-capacity"
    IMPOSSIBLE_MIG_LAYOUT = "impossible-mig-layout"
    LAYOUT_MISMATCH = "layout-mismatch"
    IMPOSSIBLE_REQUIREMENT = "impossible-requirement"
    INVALID_SCHEDULE = "invalid-schedule"
    AMBIGUOUS_FLAVOR = "ambiguous-flavor"
    OVERLAYS_IN_CONFLICT = "overlays-in-conflict"
    UNKNOWN_NAME = "unknown-name"
    NO_OFFER = "no-offer"
    QUOTA_BEYOND_LIMITS = "quota-beyond-limits"
    PROFILE_WITHOUT_QUOTA = "profile-without-quota"
    FOREIGN_KIND = "foreign-kind"
    UNUSED = "unused"
    MISPLACED = "misplaced"


DESCRIPTIONS: dict[Code, str] = {
    Code.ENCODING: "Files are UTF-8 text without control characters",
    Code.YAML_SYNTAX: "Files are YAML 1.2 without tags",
    Code.DUPLICATE_KEY: "A key appears once in a mapping",
    Code.TOO_LARGE: "Files, documents and alias expansion stay within limits",
    Code.NOT_A_DECLARATION: "Every document has apiVersion, kind and metadata.name",
    Code.UNKNOWN_KIND: "The kind and apiVersion are known",
    Code.NOT_READ_YET: "Manifests of other systems are not read",
    Code.NOT_READ: "Whatever could declare something can be read",
    Code.UNSUPPORTED: "Manifests of other systems ask only for what has an effect here",
    Code.UNKNOWN_KEY: "Every key is known",
    Code.MISSING_KEY: "Required keys are there",
    Code.INVALID_VALUE: "Values have the right type and form",
    Code.DUPLICATE_NAME: "Names are unique within a kind",
    Code.DANGLING_REFERENCE: "Every reference names something that is declared",
    Code.CYCLE: "The quota tree has no cycles",
    Code.NAMESPACE_CLAIMED_TWICE: "A namespace belongs to one team",
    Code.QUOTA_WITHOUT_CAPACITY: "Quotas are given for resources the flavor's machines can offer",
    Code.IMPOSSIBLE_MIG_LAYOUT: "MIG layouts fit on the GPU",
    Code.LAYOUT_MISMATCH: "MIG layouts suit the machines of the pool",
    Code.IMPOSSIBLE_REQUIREMENT: "Requirements leave something that can be bought",
    Code.INVALID_SCHEDULE: "Schedules are five-field cron that fires",
    Code.AMBIGUOUS_FLAVOR: "A flavor named like a pool includes that pool",
    Code.OVERLAYS_IN_CONFLICT: "Overlays of one weight are about different offers",
    Code.UNKNOWN_NAME: "Names of machines, zones and resources are known",
    Code.NO_OFFER: "Something on sale meets the conditions",
    Code.QUOTA_BEYOND_LIMITS: "Limits of pools can hold what quotas guarantee",
    Code.PROFILE_WITHOUT_QUOTA: "Every slice of a GPU that can be had is counted in a quota",
    Code.FOREIGN_KIND: "Manifests for other programs stand elsewhere",
    Code.UNUSED: "Declarations are used",
    Code.MISPLACED: "Clusters, bases and patches stand where each is read once",
}


MOST_CHARACTERS: Final = 2_000
"""Of a message, a hint or a path: they repeat words of files, which may be as long as the files."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. Lines and columns count from 1, columns in characters; of long sentences the middle is left out."""

    file: str
    line: int
    column: int
    path: str
    """Where in the document: `spec.quotas.h100.guaranteed`; empty for the document or file as a whole."""
    message: str
    code: Code
    hint: str = ""
    severity: Severity = "error"
    excerpt: str = ""
    """The line with its neighbours and a caret below it; several lines of text."""

    def __post_init__(self) -> None:
        for name, text in (("path", self.path), ("message", self.message), ("hint", self.hint)):
            if len(text) > MOST_CHARACTERS:
                half = MOST_CHARACTERS // 2 - 3
                object.__setattr__(self, name, f"{text[:half]} ... {text[-half:]}")

    @property
    def place(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.place}: {path}{self.message}{hint}"

    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Problems are shown by place, then text."""
        return self.file, self.line, self.column, self.path, self.message


class InvalidFleet(ValueError):
    """A revision that cannot come into force; `problems` holds every error and warning, ordered by place."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def errors_first(problems: Sequence[Problem]) -> list[Problem]:
    """Returns errors before warnings, each as they came: an invalid revision is so for its errors."""
    return sorted(problems, key=lambda it: it.severity != "error")


def in_short(problems: Sequence[Problem]) -> str:
    """Returns how many errors there are, and the first of them with its place; IndexError for no problem at all."""
    first = errors_first(problems)[0]
    count = sum(it.severity == first.severity for it in problems)
    shown = f"{first.path}: {first.message}" if first.path else first.message
    place = f"{first.file}:{first.line}:{first.column}"
    return f"{'1 problem:' if count == 1 else f'{count} problems; first:'} {place}: {shown}"
