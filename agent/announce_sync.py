"""Events about the FleetSync: one for each change of its conditions, and one that says by whose hands it came."""

from collections.abc import Callable, Mapping

from agent.announce import API_VERSION
from agent.sync import SyncState
from fleet.actions import Announce
from fleet.snapshot import JobRef
from providers.kube.objects import Finding, SyncReport

BAD_OUTCOMES = frozenset({"Invalid", "Refused", "Rewound", "Unsigned", "Untrusted", "SourceFailed"})
"""What becomes of a revision, or of the repository, that somebody has to see to."""

MERGED = "Merged"
"""The reason with which it is told by whose hands a revision came."""


class SyncAnnouncer:
    """Turns each change of the FleetSync's conditions into one event on it: of a revision also when another has it."""

    def __init__(self, *hearers: Callable[[Announce], object]) -> None:
        self._hearers = hearers
        self._told: dict[str, tuple[str, ...]] = {}
        self._hands: tuple[object, ...] = ()

    def continue_from(self, report: SyncReport) -> None:
        """What an earlier process has shown is no news."""
        self._told = {it.type: _told_by(it, report) for it in report.findings}
        self._hands = _hands_of(report)

    def tell(self, state: SyncState, report: SyncReport) -> None:
        """Announce what is other than before. Trouble that passes, and the start of a process, are no news."""
        if state.outcome == "Waiting" or (state.trouble is not None and state.trouble.transient):
            return
        ref = JobRef(API_VERSION, "FleetSync", "", report.name, "")
        counting = {"Done"} if state.convergence is not None and not state.convergence.counted else set()
        now = {it.type: it for it in report.findings if it.type not in _UNTOLD | counting}
        said: set[str] = set()
        for kind, found in now.items():
            told = _told_by(found, report)
            if self._told.get(kind) == told or found.message in said:
                continue
            said.add(found.message)
            first = kind not in self._told and found.reason in _AT_REST
            if not first:
                message = f"{found.message}{_decided_by(state)}" if kind == "Ready" else found.message
                self._hands = _hands_of(report) if kind == "Ready" else self._hands
                self._say(Announce(ref, found.reason, message, "Warning" if _warns(found) else "Normal"))
        if (hands := _hands_of(report)) != self._hands and state.hands.words:
            words = f"{state.attempted} came by request {state.hands.request}, {state.hands.words}"
            self._say(Announce(ref, MERGED, words))
        self._hands = hands
        for kind in sorted(self._told.keys() - now.keys() & _OVER.keys()):
            self._say(Announce(ref, _OVER[kind], f"{kind} is over"))
        self._told = {kind: _told_by(found, report) for kind, found in now.items()}

    def _say(self, announce: Announce) -> None:
        for hear in self._hearers:
            hear(announce)


def _decided_by(state: SyncState) -> str:
    """Which plan the attempt was judged by, and whose work it is, for whoever asks later; or nothing."""
    plan = f"plan {state.plan.plan_id}" if state.plan is not None and state.plan.plan_id else ""
    author = f"by {state.author}" if state.author else ""
    signer = f"signed by {state.attempted_signer}" if state.attempted_signer else ""
    told = ", ".join(filter(None, (plan, author, signer, state.hands.words)))
    return f" ({told})" if told else ""


def _hands_of(report: SyncReport) -> tuple[object, ...]:
    """By whose hands the newest attempt came, where it came by a request."""
    newest = report.history[0] if report.history else None
    return (newest.revision, newest.merged_by, newest.approved_by) if newest and newest.request else ()


_UNTOLD = frozenset({"Reconciling", "Progressing"})
"""Conditions of what is under way: `Ready` and `Done` tell what comes of it."""
_AT_REST = frozenset({"InSync", "Verified"})
"""Reasons that are no news where nothing was shown before."""
_OVER: Mapping[str, str] = {
    "Suspended": "Resumed",
    "DecisionFailed": "Recovered",
    "WriteRefused": "Recovered",
    "ReviewFailed": "Recovered",
    "LedgerFailed": "Recovered",
    "BooksFailed": "Recovered",
    "NotificationsFailed": "Recovered",
    "RolloutPaused": "RolloutResumed",
    "LayoutsFailing": "Recovered",
    "OutsideQuota": "Recovered",
}
"""Conditions whose end is news, and the reason it is told with; what else ends is followed by another condition."""
_BAD_CONDITIONS = frozenset(
    {
        "Stalled",
        "DecisionFailed",
        "WriteRefused",
        "ReviewFailed",
        "LedgerFailed",
        "BooksFailed",
        "NotificationsFailed",
        "RolloutPaused",
        "OutsideQuota",
        "LayoutsFailing",
        "LayoutRolledBack",
    }
)


def _told_by(found: Finding, report: SyncReport) -> tuple[str, ...]:
    """What makes a condition other news: an outcome is told of each revision, all else once."""
    of = report.attempted if found.type in ("Ready", "Stalled") else ""
    return str(found.holds), found.reason, of or (report.applied if found.type == "Done" else "")


def _warns(found: Finding) -> bool:
    untrusted = found.type == "SourceVerified" and not found.holds
    return (
        found.reason in BAD_OUTCOMES | {"Stalled"} or untrusted or (found.type in _BAD_CONDITIONS and bool(found.holds))
    )
