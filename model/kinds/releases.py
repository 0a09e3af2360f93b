"""Releases of machine images: the one that a template pins, and which of two is the newer."""

from typing import NamedTuple


class PinnedRelease(NamedTuple):
    """The release of its images that a node template names, so that another one is a change of the template."""

    family: str
    version: str
    """Such as `v20250505` or `v1.20.3`."""
    at: tuple[str | int, ...]
    """Where the template says both, as `FAMILY@VERSION`."""

    def named(self, version: str = "") -> str:
        """What stands there, or would for another version."""
        return f"{self.family}@{version or self.version}"


def release_order(version: str) -> tuple[int, ...]:
    """Orders the versions of one family, older ones first."""
    return tuple(int(part) for part in version.removeprefix("v").split(".") if part)
