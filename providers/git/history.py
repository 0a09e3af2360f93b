"""History goes forward: which revision may follow the one in force, and what a signed statement permits beyond that."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import overload

from providers.git.selector import Target
from providers.git.versions import Version, parse_version

TRAILER = "Muster-Rewind"
_TRAILER = re.compile(rb"^Muster-Rewind:[ \t]*([0-9a-f]{40})[ \t]*$", re.MULTILINE | re.IGNORECASE)
_REVISION = re.compile(r"(?:(?P<label>.*)@)?sha1:(?P<oid>[0-9a-f]{40})")
_OID_BYTES = 20
CONFIRMATION = "Muster-Confirm-Deletion"
_CONFIRMATION = re.compile(
    rb"^Muster-Confirm-Deletion:[ \t]*((?:nodepool|team)/[a-z0-9][a-z0-9.-]{0,62})[ \t]*$", re.MULTILINE | re.IGNORECASE
)
MOST_TRAILERS = 100
"""Trailers of one kind that are read of a message; what further ones say is not said."""


class HistoryRule(Enum):
    """Which revisions may follow the one in force (`source.history`)."""

    FAST_FORWARD = "FastForward"
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class Ancestors(Sequence[bytes]):
    """Sorted raw oids in one string of bytes: 20 for each commit, however many there are."""

    raw: bytes = b""

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        """The oid at a place. Errors: IndexError; TypeError for a slice, which nobody needs."""
        if isinstance(at, slice):
            raise TypeError("ancestors are not sliced")
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self.raw[at * _OID_BYTES : (at + 1) * _OID_BYTES]

    def __len__(self) -> int:
        return len(self.raw) // _OID_BYTES

    def __contains__(self, oid: object) -> bool:
        """Whether the commit (40 digits) is among them."""
        if not isinstance(oid, str):
            return False
        wanted = bytes.fromhex(oid)
        at = bisect_left(self, wanted)
        return at < len(self) and self[at] == wanted


@dataclass(frozen=True, slots=True)
class Lineage:
    """What one revision says of its past.

    `leaves` are the commits it may leave behind by a signed statement or by our settings; `tag_signed` says that the
    tag that names it was verified, so that its version is a signed statement as well.
    """

    target: Target
    ancestors: Ancestors
    leaves: frozenset[str] = frozenset()
    tag_signed: bool = False
    whole: bool = True

    def refusal(self, in_force: str) -> str:
        """Why this may not follow the revision `in_force`, or an empty string if it may."""
        found = _REVISION.fullmatch(in_force)
        if found is None or found["oid"] == self.target.oid or found["oid"] in self.leaves:
            return ""
        before, after = parse_version(found["label"] or ""), parse_version(self.target.label)
        if _is_lower(after, before):
            return _told(self.target, in_force, found["oid"], "is a lower version than")
        if found["oid"] in self.ancestors or (self.tag_signed and _is_lower(before, after)):
            return ""
        known = "" if self.whole else f" (of which the last {len(self.ancestors)} commits were read)"
        return _told(self.target, in_force, found["oid"], f"does not have in its history{known}")


def _is_lower(one: Version | None, other: Version | None) -> bool:
    return one is not None and other is not None and one < other


def _told(target: Target, in_force: str, oid: str, how: str) -> str:
    return (
        f"{target.revision} {how} {in_force}, which is in force. If that is meant, say so in a signed commit with the "
        f"trailer '{TRAILER}: {oid}', or put {oid} into source.allowRewind of the agent's settings"
    )


def statements(signed: bytes) -> frozenset[str]:
    """The commits that a commit or tag, whose signature has been verified, says may be left behind: its trailers."""
    return _said(_TRAILER, signed)


def confirmations(raw: bytes) -> frozenset[str]:
    """The declarations (`nodepool/h100`) that a commit or tag says may be deleted: its trailers.

    Whoever asks for signatures passes what was verified. In a repository without, it is a word against slips.
    """
    return _said(_CONFIRMATION, raw)


def _said(trailer: re.Pattern[bytes], raw: bytes) -> frozenset[str]:
    """What the trailers say that stand in the last paragraph of the message of a commit or tag."""
    message = raw.partition(b"\n\n")[2]
    last_paragraph = message.rstrip().rpartition(b"\n\n")[2]
    found = islice(trailer.finditer(last_paragraph), MOST_TRAILERS)
    return frozenset(each[1].decode().lower() for each in found)
