"""What machines are born with, by name as pools declare it, and what those names stand for in the cloud now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from model.kinds import NodeTemplate


class ImageKind(NamedTuple):
    """What an image has to suit; machines of one kind take the same image."""

    arch: str = "amd64"
    accelerator: str = ""
    """Who made the GPUs or accelerators: `nvidia`, `aws`, ...; empty = there are none."""


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """A question to the cloud: which images and subnets the names in a template stand for, for these machines."""

    pool_hash: str
    """Of the pools that say so: the answer is kept by it, so that one to another template is never taken for it."""
    template: NodeTemplate
    kinds: tuple[ImageKind, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The cloud's answer to a `LaunchConfiguration`; what it does not know, or has not got, is missing in it."""

    images: Mapping[ImageKind, str] = field(default_factory=dict)
    """Kind -> id of the image that a machine gets now."""
    subnets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Id of every subnet selected -> ids, sorted, of the security groups that a machine in it gets; empty = unknown."""


@dataclass(frozen=True, slots=True)
class Resolutions:
    """The cloud's answers of one reading. A machine that was launched after it began is not judged by them."""

    at_s: float = -inf
    """When the reading began (epoch seconds)."""
    found: Mapping[str, Resolved] = field(default_factory=dict)
    """Pool hash -> answer."""


NOT_READ = Resolutions()
