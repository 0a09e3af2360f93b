"""Describes how machines are launched, by the names that pools declare, and what these names stand for in the cloud."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from model.kinds import NodeTemplate


class ImageKind(NamedTuple):
    """An `ImageKind` is what an image has to suit; machines of one kind take the same image."""

    arch: str = "amd64"
    accelerator: str = ""
    """Who made the GPUs or accelerators: `nvidia`, `aws`, ...; empty = there are none."""


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """A `LaunchConfiguration` asks the cloud which images and subnets the names in a template stand for."""

    pool_hash: str
    """Hash of the template, by which the answer is kept."""
    template: NodeTemplate
    kinds: tuple[ImageKind, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A `Resolved` is the cloud's answer to a `LaunchConfiguration`; what does not exist or is unknown is missing."""

    images: Mapping[ImageKind, str] = field(default_factory=dict)
    """Kind -> id of the image that a machine gets now."""
    subnets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Id of every subnet selected -> ids, sorted, of the security groups that a machine in it gets; empty = unknown."""


@dataclass(frozen=True, slots=True)
class Resolutions:
    """`Resolutions` are the cloud's answers of one reading; machines launched after it began are not judged by them."""

    at_s: float = -inf
    """When the reading began (epoch seconds)."""
    found: Mapping[str, Resolved] = field(default_factory=dict)
    """Pool hash -> answer."""


NOT_READ = Resolutions()
