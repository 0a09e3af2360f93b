"""`muster suspend`, `resume`, `reconcile` and `history`: the FleetSync as a person operates it, in Flux's words."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from agent.asked import REASON_MOST, Operated, ask_of, decode_operated, request, suspended_words, told_reason
from agent.cli import exits
from agent.cli.tables import TextTable, render, table_width
from model.plain_text import plain
from providers.kube.config import connect
from providers.kube.errors import KubeError, NotFound
from providers.kube.resources import FLEET_SYNCS
from providers.kube.transport import KubeTransport

_LOOK_EVERY_S = 0.2
_EXITS = {"Applied": exits.OK, "Invalid": exits.INVALID, "Refused": exits.REFUSED}


class NotOperable(Exception):
    """What was asked cannot be done now; the message says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class SyncPlace:
    """Which FleetSync is operated, and how long an answer of the agent is waited for."""

    kubeconfig: Path | None
    context: str | None
    name: str = ""
    """Empty = the only one of the cluster."""
    timeout_s: float = 60.0


class _Named(msgspec.Struct, frozen=True):
    name: str


class _NamedSync(msgspec.Struct, frozen=True):
    metadata: _Named


class SyncCondition(msgspec.Struct, frozen=True):
    """A condition of a FleetSync."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class PastRevision(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a revision, as a FleetSync remembers it."""

    revision: str = ""
    outcome: str = ""
    first_at: str = ""
    plan: str = ""
    author: str = ""
    signer: str = ""
    message: str = ""
    request: int = 0
    merged_by: str = ""
    approved_by: tuple[str, ...] = ()


class _Spec(msgspec.Struct, frozen=True):
    reference: str = ""
    path: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_revision: str = ""
    attempted_revision: str = ""
    applied_revision: str = ""
    verified_signer: str = ""
    last_handled_request: str = ""
    conditions: tuple[SyncCondition, ...] = ()
    history: tuple[PastRevision, ...] = ()


class SyncView(msgspec.Struct, frozen=True):
    """A FleetSync as it stands: what the agent says of itself, and where it reads from.

    It is read without the agent's code, which would take most of a second to start.
    """

    metadata: _Named
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def applied(self) -> str:
        """Returns the revision in force; empty = none yet."""
        return self.status.applied_revision

    @property
    def observed(self) -> str:
        """Returns the newest revision that was seen."""
        return self.status.observed_revision

    def finding(self, kind: str) -> SyncCondition | None:
        """Returns the condition of a type."""
        return next((it for it in self.status.conditions if it.type == kind), None)


class SyncHandle:
    """The FleetSync of a cluster, read anew at each look."""

    def __init__(self, place: SyncPlace) -> None:
        """Errors: KubeError; NotOperable where the cluster has none, or several and none is named."""
        self.transport = KubeTransport(connect("", place.kubeconfig, place.context))
        self._timeout_s = place.timeout_s
        self.name = place.name or self._only_name()

    def _only_name(self) -> str:
        try:
            pages = list(self.transport.list_pages(FLEET_SYNCS))
        except NotFound:
            raise NotOperable("Muster is not installed on this cluster: it has no kind FleetSync") from None
        names = sorted(
            msgspec.json.decode(raw, type=_NamedSync).metadata.name for page in pages for raw in page.items or ()
        )
        if len(names) != 1:
            found = f"there are {', '.join(names)}; name one with --cluster" if names else "no agent has led here yet"
            raise NotOperable(f"which FleetSync is meant? {found}")
        return names[0]

    def look(self) -> SyncView:
        """What it says now. Errors: KubeError."""
        return msgspec.json.decode(self.transport.read(FLEET_SYNCS, self.name), type=SyncView)

    def until(self, holds: Callable[[SyncView], bool], words: str) -> SyncView:
        """What it says once that holds. Errors: NotOperable where it does not in time."""
        ends_s = time.monotonic() + self._timeout_s
        while not holds(view := self.look()):
            if time.monotonic() >= ends_s:
                raise NotOperable(
                    f"not within {self._timeout_s:g} s: {words}; is an agent leading? {self._ready(view)}"
                )
            time.sleep(_LOOK_EVERY_S)
        return view

    @staticmethod
    def _ready(view: SyncView) -> str:
        found = view.finding("Ready")
        return f"Its status says: {found.message}" if found else "It has no status"


def answered(place: SyncPlace, answer: Callable[[SyncHandle], int]) -> int:
    """Returns the exit code of what is done with the FleetSync; what is in the way is told."""
    try:
        return answer(SyncHandle(place))
    except (KubeError, NotOperable, OSError) as error:
        exits.complain(error)
        return exits.ERROR


def suspend(place: SyncPlace, reason: str) -> int:
    """Let no revision come into force until it is resumed; the exit code."""

    def answer(sync: SyncHandle) -> int:
        ask_of(sync.transport, sync.name, Operated(suspended=True, reason=reason))
        begins = suspended_words(told_reason(reason[:REASON_MOST]))
        view = sync.until(
            lambda it: _by_hand(it).startswith(begins), "the agent has heard it; it is written, and will hold"
        )
        _say(view, "Suspended")
        return exits.OK

    return answered(place, answer)


def resume(place: SyncPlace) -> int:
    """Let revisions come into force again, and wait for what becomes of the newest; the exit code."""

    def answer(sync: SyncHandle) -> int:
        ask_of(sync.transport, sync.name, Operated(suspended=False))
        sync.until(lambda it: not _by_hand(it), "the agent has heard it")
        return _reconciled(sync)

    return answered(place, answer)


def reconcile(place: SyncPlace) -> int:
    """Let the agent look at the repository now, and wait for what becomes of the newest revision; the exit code."""

    def answer(sync: SyncHandle) -> int:
        if decode_operated(sync.transport.read(FLEET_SYNCS, sync.name)).suspended:
            raise NotOperable(f"{sync.name} is suspended: `muster resume` lets revisions come into force again")
        return _reconciled(sync)

    return answered(place, answer)


def _reconciled(sync: SyncHandle) -> int:
    value = request(sync.transport, sync.name, time.time())
    if not value:
        raise NotOperable("others keep writing the FleetSync; try again")
    sync.until(lambda it: it.status.last_handled_request == value, "the agent has looked at the repository")
    view = sync.until(_judged, "the newest revision has been judged")
    _say(view, "Ready")
    _say(view, "Done")
    found = view.finding("Ready")
    return _EXITS.get(found.reason, exits.ERROR) if found else exits.ERROR


def _judged(view: SyncView) -> bool:
    """Whether nothing that was seen waits to be planned; or the repository cannot be read, and nothing was seen."""
    ready, status = view.finding("Ready"), view.status
    if ready is not None and ready.reason == "SourceFailed":
        return True
    return not _plans(view) and status.observed_revision == status.attempted_revision


def _plans(view: SyncView) -> bool:
    found = view.finding("Reconciling")
    return found is not None and found.reason == "Planning"


def _by_hand(view: SyncView) -> str:
    """What the agent says of its suspension by hand; empty where it says none, though the repository may suspend it."""
    found = view.finding("Suspended")
    return found.message if found and (found.status, found.reason) == ("True", "Suspended") else ""


def _say(view: SyncView, kind: str) -> None:
    if found := view.finding(kind):
        sys.stdout.write(plain(f"{kind}={found.status} {found.reason}: {found.message}") + "\n")


def history(place: SyncPlace, output: str) -> int:
    """Print what became of the last revisions, newest first; the exit code."""

    def answer(sync: SyncHandle) -> int:
        """Print the rows as JSON or as a table, with times in UTC; the exit code."""
        view = sync.look()
        rows: list[dict[str, Any]] = [
            {
                "revision": it.revision,
                "at": _utc(it.first_at),
                "outcome": it.outcome,
                "plan": it.plan,
                "author": it.author,
                "signer": it.signer,
                "request": it.request or None,
                "merged by": it.merged_by,
                "approved by": list(it.approved_by),
                "message": it.message,
                "in force": it.revision == view.applied and it.outcome == "Applied",
            }
            for it in view.status.history
        ]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n" if output == "json" else _table(rows) + "\n")
        return exits.OK

    return answered(place, answer)


def _table(rows: list[dict[str, Any]]) -> str:
    shown = [
        row
        | {
            "": "*" if row["in force"] else "",
            "revision": shortened(row["revision"]),
            "plan": row["plan"][:_SHORT] or "-",
            "author": row["author"] or "-",
            "signed by": row["signer"] or "-",
            "merged by": row["merged by"] or "-",
            "approved by": ", ".join(row["approved by"]) or "-",
            "message": row["message"][:_MESSAGE],
        }
        for row in rows
    ]
    return render(TextTable(_COLUMNS, shown, _CUT, _DROPPED), table_width())


_COLUMNS = ("", "revision", "at", "outcome", "plan", "author", "signed by", "approved by", "merged by", "message")
_CUT = ("author", "signed by", "approved by", "merged by", "message")
_DROPPED = ("merged by", "approved by", "signed by", "plan", "author")
_SHORT = 12
_MESSAGE = 80


def shortened(revision: str) -> str:
    """Returns `main@sha1:<the first twelve digits>`."""
    label, colon, oid = revision.rpartition(":")
    return f"{label}{colon}{oid[:_SHORT]}"


def _utc(instant: str) -> str:
    return datetime.fromisoformat(instant).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
