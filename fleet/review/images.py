"""Which pools get a newer release of their images proposed, and in which words."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fleet.snapshot import Resolutions
from model.fleet import Fleet
from model.kinds.releases import PinnedRelease, release_order
from model.pools import pool_hashes

BRANCHES: Final = "muster/images/"
"""Branches of requests that the agent opens; what follows is the pool, and the version."""
_VERSION = re.compile(r"v[0-9]{1,10}(\.[0-9]{1,10}){0,3}")
_LAYOUTS: Final = "muster/layouts/"
_DIGEST = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class ImageProposal:
    """An `ImageProposal` raises the release that a pool pins (`images: ProposeChange`)."""

    pool: str
    pinned: PinnedRelease
    """As it is declared."""
    release: str
    """The newest version that all of the pool's kinds of machines have images of."""

    @property
    def proposed(self) -> str:
        """Returns what the template would say."""
        return self.pinned.named(self.release)

    @property
    def at(self) -> tuple[str | int, ...]:
        """Returns where the declaration of the pool says it."""
        return ("spec", "template", *self.pinned.at)

    @property
    def branch(self) -> str:
        """Returns the branch that it stands on: one a version, so that one that somebody has closed stays closed."""
        return f"{BRANCHES}{self.pool}/{self.release}"

    @property
    def title(self) -> str:
        """Returns the title of its request, and of its commit."""
        return f"Node pool {self.pool}: images {self.pinned.named()} to {self.release}"

    @property
    def words(self) -> str:
        """Returns what its request says; the plan comes as a comment, as of any other."""
        return (
            f"The newest release of the images of node pool `{self.pool}` is `{self.proposed}`;"
            f" `{self.pinned.named()}` is declared. Machines are replaced once this is merged, within the pool's"
            " budgets and the policy's roll-out. A request that is closed stays closed: the next release has its own."
        )


def image_proposals(fleet: Fleet, resolved: Resolutions) -> Iterator[ImageProposal]:
    """Yields what is to be proposed now, by name of the pool; nothing where the newest release is not known."""
    hashes = pool_hashes(fleet.index, fleet.node_pools)
    for name, pool in sorted(fleet.node_pools.items()):
        template, found = pool.spec.template, resolved.found.get(hashes[name])
        pinned, newest = template.pinned, found.newest_release if found else ""
        if template.images != "ProposeChange" or pinned is None or not newest:
            continue
        if release_order(newest) > release_order(pinned.version):
            yield ImageProposal(name, pinned, newest)


def overtaken(branch: str, proposals: Iterable[ImageProposal]) -> bool:
    """Returns whether a branch of ours proposes an older release than what is proposed for its pool now."""
    pool, version = _named(branch)
    return any(it.pool == pool and version and release_order(version) < release_order(it.release) for it in proposals)


def is_open(proposal: ImageProposal, branches: Iterable[str]) -> bool:
    """Returns whether one of these branches proposes that release for the pool already, or a newer one."""
    known = (version for pool, version in map(_named, branches) if pool == proposal.pool and version)
    return any(release_order(version) >= release_order(proposal.release) for version in known)


def is_of_ours(branch: str, *, from_fork: bool) -> bool:
    """Returns whether a request comes from a branch that we make, on which only who may write can push.

    An App that opens one is no user, and no forge says what it may do.
    """
    pool, _, digest = branch.removeprefix(_LAYOUTS).rpartition("/")
    of_layouts = branch.startswith(_LAYOUTS) and bool(pool) and bool(_DIGEST.fullmatch(digest))
    return not from_fork and (of_layouts or bool(_named(branch)[0]))


def layouts_branch(pool: str, digest: str) -> str:
    """Returns the branch of advised MIG layouts for a pool, after the first signs of a hash of what they say."""
    return f"{_LAYOUTS}{pool}/{digest[:8]}"


def _named(branch: str) -> tuple[str, str]:
    """Returns pool and version of a branch of ours; empty for any other."""
    pool, _, version = branch.removeprefix(BRANCHES).rpartition("/")
    ours = branch.startswith(BRANCHES) and bool(_VERSION.fullmatch(version))
    return (pool, version) if ours else ("", "")
