"""Which commit of a repository is meant: a branch, a tag, the highest version in a range, a ref by name, a commit.

The vocabulary and the order of precedence are those of Flux (source-controller, `GitRepository.spec.ref`).
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from providers.git.errors import InvalidSelector, RevisionNotFound
from providers.git.versions import Range, Version, parse_range, parse_version

HEADS = "refs/heads/"
TAGS = "refs/tags/"
_PEELED = "^{}"
_OID = re.compile(r"[0-9a-f]{40}")
# git-check-ref-format(1): what a ref name may not contain. A name goes into a refspec, so a colon or a star would
# fetch something else than it says.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|^\.|^/|/$|\.$|\.lock(/|$)")


class Target(NamedTuple):
    """Where a selector points: a full ref name (empty for a bare commit) and the 40 hex digits of the commit."""

    ref: str
    oid: str

    @property
    def revision(self) -> str:
        """The revision as Flux writes it: `main@sha1:<oid>`, `v1.0.1@sha1:<oid>`, `sha1:<oid>` without a ref."""
        return f"{self.label}@sha1:{self.oid}" if self.label else f"sha1:{self.oid}"

    @property
    def label(self) -> str:
        """The ref without `refs/heads/` or `refs/tags/`."""
        return self.ref.removeprefix(HEADS).removeprefix(TAGS)


@dataclass(frozen=True)
class Branch:
    """The tip of a branch."""

    name: str = "main"

    def __post_init__(self) -> None:
        _check_ref(HEADS + self.name)

    def resolve(self, heads: Mapping[str, str]) -> Target:
        """The branch's tip among `heads` (full ref name -> oid). Errors: RevisionNotFound."""
        return _lookup(HEADS + self.name, heads, f"branch {self.name!r}")


@dataclass(frozen=True)
class Tag:
    """The commit a tag points to."""

    name: str

    def __post_init__(self) -> None:
        _check_ref(TAGS + self.name)

    def resolve(self, heads: Mapping[str, str]) -> Target:
        """The tag's commit, peeled where `heads` has it. Errors: RevisionNotFound."""
        return _lookup(TAGS + self.name, heads, f"tag {self.name!r}")


@dataclass(frozen=True)
class Ref:
    """Any ref by its full name, `refs/pull/42/head` for instance."""

    name: str

    def __post_init__(self) -> None:
        if not self.name.startswith("refs/"):
            raise InvalidSelector(f"{self.name!r} is not a full ref name; it must start with refs/")
        _check_ref(self.name)

    def resolve(self, heads: Mapping[str, str]) -> Target:
        """The ref's commit. Errors: RevisionNotFound."""
        return _lookup(self.name, heads, f"ref {self.name!r}")


@dataclass(frozen=True)
class Commit:
    """One commit for ever; only the full 40 digits, since a prefix can be made to collide."""

    oid: str
    branch: str = ""

    def __post_init__(self) -> None:
        if not _OID.fullmatch(self.oid):
            raise InvalidSelector(f"{self.oid!r} is not a commit: 40 lower-case hexadecimal digits are")
        if self.branch:
            _check_ref(HEADS + self.branch)

    def resolve(self, heads: Mapping[str, str]) -> Target:
        """The commit itself; whether it exists shows when it is read."""
        del heads
        return Target(HEADS + self.branch if self.branch else "", self.oid)


@dataclass(frozen=True)
class SemVer:
    """The tag with the highest version in a range; pre-releases only where the range names one."""

    range: str

    def __post_init__(self) -> None:
        parse_range(self.range)

    def resolve(self, heads: Mapping[str, str]) -> Target:
        """The highest matching tag; of equal versions (`1.0.0`, `v1.0.0`) the last by name.

        Errors: RevisionNotFound.
        """
        best = max(_versions(heads, parse_range(self.range)), default=None)
        if best is None:
            raise RevisionNotFound(f"no tag matches the version range {self.range!r}")
        return _lookup(TAGS + best[1], heads, f"tag {best[1]!r}")


Selector = Branch | Tag | SemVer | Ref | Commit


def select(branch: str = "", tag: str = "", semver: str = "", name: str = "", commit: str = "") -> Selector:
    """The selector that a spec with these fields means; a later one wins (branch < tag < semver < name < commit).

    A commit keeps its branch as the label. Nothing given means the branch `main`. Errors: InvalidSelector.
    """
    if commit:
        return Commit(commit, branch)
    if name:
        return Ref(name)
    if semver:
        return SemVer(semver)
    return Tag(tag) if tag else Branch(branch or "main")


def revision_target(selector: Selector, revision: str) -> Target | None:
    """Where `selector` would have pointed when it gave `revision` (`main@sha1:<oid>`); None if it never could have."""
    label, _, oid = revision.rpartition("sha1:")
    label = label.removesuffix("@")
    if not _OID.fullmatch(oid):
        return None
    for ref in (HEADS + label, TAGS + label, label) if label else ("",):
        target = Target(ref, oid)
        with suppress(RevisionNotFound):
            if selector.resolve({ref: oid}) == target:
                return target
    return None


def _versions(heads: Mapping[str, str], wanted: Range) -> list[tuple[Version, str]]:
    names = (ref.removeprefix(TAGS) for ref in heads if ref.startswith(TAGS) and not ref.endswith(_PEELED))
    parsed = ((parse_version(name), name) for name in names)
    return [(version, name) for version, name in parsed if version is not None and version in wanted]


def _lookup(ref: str, heads: Mapping[str, str], what: str) -> Target:
    oid = heads.get(ref + _PEELED) or heads.get(ref)
    if oid is None:
        raise RevisionNotFound(f"the remote has no {what}")
    return Target(ref, oid)


def _check_ref(ref: str) -> None:
    if _FORBIDDEN.search(ref) or not ref.isprintable() or len(ref) > 512:
        raise InvalidSelector(f"{ref!r} is not a valid ref name")
