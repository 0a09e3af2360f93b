"""Attacks on trust, made on a real repository and heard as the agent hears them: what is in force, and what is said."""

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.announce_sync import SyncAnnouncer
from agent.failures import Failures
from agent.inbox import Event, Pushed, RevisionLost, SourceTrouble, SourceWell, TrustJudged
from agent.notify import Notifier
from agent.outbox import Attempt
from agent.reports import sync_report
from agent.sources import git_listener
from agent.sync import Sync
from fleet.actions import Announce
from fleet.snapshot import Snapshot
from model.loader import load
from providers.clock import VirtualClock
from providers.git.auth import Remote
from providers.git.history import HistoryRule
from providers.git.selector import SemVer
from providers.git.settings import GitSettings
from providers.git.signature import Mode
from providers.git.source import GitSource
from providers.git.trust import Verification
from providers.kube.objects import Finding, SyncReport
from tests.agent.scenes import CATALOG, doc, files, simple
from tests.providers.git.support import ENVIRONMENT, EPOCH_S, WorkTree

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
TOLD = load(
    {
        name: text.encode()
        for name, text in files(
            doc("FleetPolicy", "p", notifications=[{"name": "s", "type": "Webhook", "addressEnv": "SINK"}])
        ).items()
    }
)
WORLD = Snapshot(now_s=EPOCH_S, catalog=CATALOG)


class SmallAgent:
    """The path of a push through the agent, one process of it: source, listener, sync and what is shown."""

    def __init__(self, settings: GitSettings, clock: VirtualClock, status: SyncReport) -> None:
        self.source = GitSource(settings, clock, random.Random(1))
        self.sync = Sync(adopted=lambda revision, _fleet: self.source.adopted(revision))
        self.heard: list[Event] = []
        self.events: list[Announce] = []
        self.news: list[tuple[str, str]] = []
        self._status = status
        wanted = self.source.expected(status.applied)
        if wanted:
            self.sync.expect(wanted)
        self._listen = git_listener(self.source, self.heard.append, wanted)
        self._notifier = Notifier("c", self.sync, self._put)
        self._announcer = SyncAnnouncer(self.events.append, self._notifier.hear)

    def poll(self) -> SyncReport:
        """Listen once, judge all that is due; the FleetSync as it is shown then."""
        self._listen()
        while self.heard:
            event = self.heard.pop(0)
            assert isinstance(event, Pushed | SourceTrouble | SourceWell | RevisionLost | TrustJudged)
            self.sync.hear(event)
        while (job := self.sync.due(WORLD, EPOCH_S)) is not None:
            self.sync.judge(job(), EPOCH_S)
        self._notifier.turned(TOLD, WORLD)
        self._status = sync_report("c", self.sync.state, 0, self._status, Failures())
        self._announcer.tell(self.sync.state, self._status)
        return self._status

    def _put(self, _sink: str, _attempt: Attempt) -> None:
        self.news.append((self.events[-1].type, self.events[-1].reason))

    @property
    def pools(self) -> list[str]:
        assert self.sync.fleet is not None
        return list(self.sync.fleet.node_pools)


def finding(report: SyncReport, kind: str) -> Finding | None:
    return next((one for one in report.findings if one.type == kind), None)


def stalled(report: SyncReport) -> tuple[str, str]:
    found = finding(report, "Stalled")
    return ("", "") if found is None else (found.reason, found.message)


@pytest.fixture
def work(tmp_path: Path) -> WorkTree:
    """A repository that signs with ada's key."""
    made = WorkTree(tmp_path / "work")
    made.path.mkdir()
    made.git("init", "-q", "-b", "main")
    for name in ("ada", "eve", "bob"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / name)],
            check=True,
            env=ENVIRONMENT,
        )
    made.git("config", "gpg.format", "ssh")
    made.git("config", "user.signingkey", str(tmp_path / "ada"))
    list_signers(tmp_path, "ada")
    return made


def list_signers(folder: Path, *names: str, options: str = "") -> Path:
    path = folder / "signers"
    path.write_text("".join(f"{name}@example.com {options}{(folder / f'{name}.pub').read_text()}" for name in names))
    return path


def push(work: WorkTree, pool: str, *flags: str, message: str = "change", **spec: Any) -> str:
    """Commit a fleet with one pool of this name, signed unless the flags say otherwise."""
    for name, text in simple(**spec).items():
        work.write(name, text.replace("h100", pool))
    work.seconds += 1
    date = f"{work.seconds} +0000"
    work.git("add", "--all")
    signing = flags or ("-S",)
    work.git("commit", "-q", "--allow-empty", "-m", message, *signing, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return work.head()


Begin = Callable[..., SmallAgent]


@pytest.fixture
def begin(work: WorkTree, tmp_path: Path) -> Iterator[Begin]:
    made: list[SmallAgent] = []
    clock = VirtualClock(EPOCH_S)

    def make(status: SyncReport | None = None, **settings: Any) -> SmallAgent:
        for old in made:
            old.source.close()
        settings.setdefault("verification", Verification(tmp_path / "signers"))
        wanted = GitSettings(Remote(str(work.path)), tmp_path / "cache", **settings)
        made.append(SmallAgent(wanted, clock, status or SyncReport("c")))
        return made[-1]

    yield make
    for agent in made:
        agent.source.close()


# -- history goes forward ---------------------------------------------------------------------------------------------


def test_an_older_signed_commit_that_is_pushed_by_force_is_rewound_until_a_signed_commit_says_so(
    work: WorkTree, begin: Begin
) -> None:
    loose = push(work, "loose")
    tight = push(work, "tight")
    agent = begin()
    agent.poll()
    assert agent.pools == ["tight"]
    work.git("reset", "-q", "--hard", loose)
    report = agent.poll()
    assert agent.pools == ["tight"]
    reason, message = stalled(report)
    assert reason == "Rewound"
    assert f"main@sha1:{loose} does not have in its history main@sha1:{tight}" in message
    assert f"Muster-Rewind: {tight}" in message
    assert (report.applied, report.attempted) == (f"main@sha1:{tight}", f"main@sha1:{loose}")
    assert [(event.reason, event.type) for event in agent.events] == [("Applied", "Normal"), ("Rewound", "Warning")]
    assert agent.events[-1].about.kind == "FleetSync"
    assert agent.news == [("Warning", "Rewound")]
    push(work, "back", "--no-gpg-sign", message=f"back\n\nMuster-Rewind: {tight}")
    assert stalled(agent.poll())[0] == "SourceFailed", "an unsigned statement is none"
    work.git("reset", "-q", "--hard", loose)
    push(work, "back", message=f"Muster-Rewind: {tight}\n\nis what the body says, and no trailer")
    assert stalled(agent.poll())[0] == "Rewound"
    work.git("reset", "-q", "--hard", loose)
    push(work, "back", message=f"go back\n\nbecause\n\nReviewed-by: bob\nMuster-Rewind: {tight}")
    assert stalled(agent.poll()) == ("", "")
    assert agent.pools == ["back"]


def test_a_statement_is_good_for_one_commit(work: WorkTree, begin: Begin) -> None:
    first = push(work, "first")
    second = push(work, "second")
    agent = begin()
    agent.poll()
    work.git("reset", "-q", "--hard", first)
    rewinding = push(work, "back", message=f"back\n\nMuster-Rewind: {second}")
    agent.poll()
    third = push(work, "third")
    agent.poll()
    assert agent.pools == ["third"]
    work.git("reset", "-q", "--hard", rewinding)
    reason, message = stalled(agent.poll())
    assert reason == "Rewound"
    assert third in message


def test_the_agents_own_settings_may_say_so_as_well(work: WorkTree, begin: Begin) -> None:
    first = push(work, "first")
    second = push(work, "second")
    report = begin().poll()
    work.git("reset", "-q", "--hard", first)
    agent = begin(report)
    agent.poll()
    assert agent.pools == ["second"]
    agent = begin(report, allow_rewind=frozenset({second}))
    agent.poll()
    assert agent.pools == ["first"]
    work.git("reset", "-q", "--hard", second)
    agent = begin(report, history=HistoryRule.ANY)
    agent.poll()
    work.git("reset", "-q", "--hard", first)
    agent.poll()
    assert agent.pools == ["first"]


def test_a_signed_commit_of_another_branch_is_not_accepted_in_its_place(work: WorkTree, begin: Begin) -> None:
    push(work, "start")
    work.git("checkout", "-qb", "feature")
    feature = push(work, "feature")
    work.git("checkout", "-q", "main")
    push(work, "tight")
    agent = begin()
    agent.poll()
    work.git("reset", "-q", "--hard", feature)
    assert stalled(agent.poll())[0] == "Rewound"
    assert agent.pools == ["tight"]


@pytest.mark.parametrize("mode", [Mode.HEAD, Mode.TAG])
def test_a_deleted_tag_does_not_bring_an_older_version_back(
    work: WorkTree, begin: Begin, tmp_path: Path, mode: Mode
) -> None:
    push(work, "one")
    work.git("tag", "-sm", "t", "v1.0.0")
    push(work, "two")
    work.git("tag", "-sm", "t", "v2.0.0")
    agent = begin(selector=SemVer("*"), verification=Verification(tmp_path / "signers", mode=mode))
    agent.poll()
    assert agent.pools == ["two"]
    work.git("tag", "-d", "v2.0.0")
    reason, message = stalled(agent.poll())
    assert reason == "Rewound"
    assert "v1.0.0" in message
    assert "is a lower version than v2.0.0" in message
    assert agent.pools == ["two"]


def test_a_higher_version_from_another_branch_needs_a_signed_tag(work: WorkTree, begin: Begin, tmp_path: Path) -> None:
    base = push(work, "base")
    push(work, "patched")
    work.git("tag", "-sm", "t", "v1.0.1")
    work.git("checkout", "-qb", "next", base)
    push(work, "next")
    signers = tmp_path / "signers"
    by_commit = begin(selector=SemVer("*"), verification=Verification(signers))
    by_commit.poll()
    work.git("tag", "-sm", "t", "v1.1.0")
    assert stalled(by_commit.poll())[0] == "Rewound", "a commit does not say that it is v1.1.0"
    by_tag = begin(selector=SemVer("*"), verification=Verification(signers, mode=Mode.TAG))
    by_tag.poll()
    by_tag.poll()
    assert by_tag.pools == ["next"]


def test_a_revision_is_judged_against_what_is_in_force_when_it_is_judged(work: WorkTree, begin: Begin) -> None:
    """Two pushes heard before the first is judged: the second must follow the first, if that comes into force."""
    start = push(work, "start")
    agent = begin()
    agent.poll()
    push(work, "one")
    agent._listen()
    first = [event for event in agent.heard if isinstance(event, Pushed)]
    agent.heard.clear()
    work.git("reset", "-q", "--hard", start)
    push(work, "two")
    agent._listen()
    second = [event for event in agent.heard if isinstance(event, Pushed)]
    agent.heard.clear()
    agent.sync.hear(first[0])
    job = agent.sync.due(WORLD, EPOCH_S)
    assert job is not None
    agent.sync.judge(job(), EPOCH_S)
    agent.sync.hear(second[0])
    assert agent.sync.due(WORLD, EPOCH_S) is None
    assert agent.sync.state.outcome == "Rewound"
    assert agent.pools == ["one"]


# -- nothing about trust is believed from status ---------------------------------------------------------------------


def test_a_status_that_names_an_unsigned_branch_is_not_believed(work: WorkTree, begin: Begin) -> None:
    """As it was done: the status patched, the remote away, the agent started anew."""
    good = push(work, "good")
    agent = begin()
    report = agent.poll()
    work.git("checkout", "-qb", "evil")
    evil = push(work, "evil", "--no-gpg-sign")
    work.git("checkout", "-q", "main")
    agent.poll()
    for label in ("evil", "main"):
        forged = SyncReport("c", applied=f"{label}@sha1:{evil}", verified_signer="ada@example.com")
        agent = begin(forged)
        away = work.path.rename(work.path.with_name("away"))
        shown = agent.poll()
        assert agent.pools == ["good"], "what the agent itself brought into force"
        assert shown.applied == f"main@sha1:{good}" == report.applied
        away.rename(work.path)


@pytest.mark.parametrize("label", ["evil", "main"])
def test_without_a_record_the_status_must_prove_itself(
    work: WorkTree, begin: Begin, tmp_path: Path, label: str
) -> None:
    push(work, "good")
    work.git("checkout", "-qb", "evil")
    evil = push(work, "evil")
    work.git("checkout", "-q", "main")
    begin().poll()
    agent = begin()
    agent.source.close()
    shutil.rmtree(tmp_path / "cache")
    agent = begin(SyncReport("c", applied=f"{label}@sha1:{evil}", verified_signer="ada@example.com"))
    report = agent.poll()
    assert agent.sync.fleet is None, "nothing is decided"
    assert stalled(report)[0] in {"RevisionLost", "Untrusted"}
    verified = finding(report, "SourceVerified")
    assert verified is None or not verified.holds
    assert report.verified == report.verified_signer == ""


def test_a_new_pod_takes_up_what_the_status_says_if_it_can_be_verified(
    work: WorkTree, begin: Begin, tmp_path: Path
) -> None:
    push(work, "one")
    report = begin().poll()
    push(work, "two", "--no-gpg-sign")
    begin().source.close()
    shutil.rmtree(tmp_path / "cache")
    agent = begin(report)
    report = agent.poll()
    assert stalled(report)[0] == "SourceFailed", "the tip is not signed"
    assert report.applied == f"main@sha1:{work.head('HEAD~1')}"
    assert agent.pools == ["one"]


def test_what_was_in_force_is_restored_while_the_remote_is_away_and_after_a_force_push(
    work: WorkTree, begin: Begin
) -> None:
    start = push(work, "start")
    push(work, "good")
    report = begin().poll()
    work.git("reset", "-q", "--hard", start)
    push(work, "other")
    work.git("reflog", "expire", "--expire=now", "--all")
    work.git("gc", "-q", "--prune=now")
    agent = begin(report)
    assert stalled(agent.poll())[0] == "Rewound"
    assert agent.pools == ["good"]
    away = work.path.rename(work.path.with_name("away"))
    agent = begin(report)
    assert finding(agent.poll(), "SourceVerified") == Finding(
        "SourceVerified", True, "Verified", "signed by ada@example.com"
    )
    assert agent.pools == ["good"]
    away.rename(work.path)


def test_a_deleted_status_does_not_make_the_agent_forget(work: WorkTree, begin: Begin) -> None:
    loose = push(work, "loose")
    push(work, "tight")
    begin().poll()
    work.git("reset", "-q", "--hard", loose)
    agent = begin(SyncReport("c"))
    assert stalled(agent.poll())[0] == "Rewound"
    assert agent.pools == ["tight"]


# -- keys come and go -------------------------------------------------------------------------------------------------


def test_a_key_that_is_taken_away_takes_its_revision_out_of_trust(work: WorkTree, begin: Begin, tmp_path: Path) -> None:
    push(work, "good")
    agent = begin()
    agent.poll()
    list_signers(tmp_path, "bob")
    report = agent.poll()
    assert agent.pools == ["good"], "what runs goes on"
    reason, message = stalled(report)
    assert reason == "Untrusted"
    assert "not among the allowed signers" in message
    verified = finding(report, "SourceVerified")
    assert verified is not None
    assert (verified.holds, verified.reason) == (False, "Untrusted")
    assert report.verified_signer == ""
    assert agent.events[-1].reason == "Untrusted"
    push(work, "more")
    assert stalled(agent.poll())[0] == "SourceFailed", "nothing new of that key"
    push(work, "bobs", f"-S{tmp_path / 'bob'}")
    report = agent.poll()
    assert agent.pools == ["bobs"]
    assert stalled(report) == ("", "")
    list_signers(tmp_path, "ada")
    agent.poll()
    list_signers(tmp_path, "ada", "bob")
    assert stalled(agent.poll()) == ("", ""), "and back in trust"


def test_a_list_that_cannot_be_read_trusts_nobody(work: WorkTree, begin: Begin, tmp_path: Path) -> None:
    push(work, "good")
    agent = begin()
    agent.poll()
    (tmp_path / "signers").unlink()
    report = agent.poll()
    verified = finding(report, "SourceVerified")
    assert verified is not None
    assert not verified.holds
    assert "cannot be read" in verified.message


def test_after_a_restart_a_revision_of_a_removed_key_is_not_in_force(
    work: WorkTree, begin: Begin, tmp_path: Path
) -> None:
    push(work, "good")
    report = begin().poll()
    list_signers(tmp_path, "bob")
    agent = begin(report)
    shown = agent.poll()
    assert agent.sync.fleet is None
    assert stalled(shown)[0] in {"Untrusted", "SourceFailed"}
    verified = finding(shown, "SourceVerified")
    assert verified is not None
    assert not verified.holds
    list_signers(tmp_path, "ada")
    assert stalled(agent.poll()) == ("", "")
    assert agent.pools == ["good"]


def test_an_expired_key_cannot_back_date_and_keeps_what_was_seen_in_time(
    work: WorkTree, begin: Begin, tmp_path: Path
) -> None:
    push(work, "good")
    clock_at_first_sight = EPOCH_S
    agent = begin()
    agent.poll()
    list_signers(tmp_path, "ada", options=f'valid-before="{stamp(clock_at_first_sight + 3600)}" ')
    assert stalled(agent.poll()) == ("", ""), "it was first seen while the key was valid"
    clock = agent.source._clock
    assert isinstance(clock, VirtualClock)
    clock.advance(7200)
    work.seconds = EPOCH_S - 86_400
    push(work, "late")
    reason, message = stalled(agent.poll())
    assert reason == "SourceFailed"
    assert "had expired when this was first seen" in message
    assert agent.pools == ["good"]


def stamp(seconds: float) -> str:
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds))


# -- hostile pushes, as the FleetSync shows them ----------------------------------------------------------------------


def test_a_huge_file_stalls_the_source_with_its_name_and_leaves_the_fleet_alone(work: WorkTree, begin: Begin) -> None:
    push(work, "good")
    agent = begin()
    agent.poll()
    with (work.path / "zeros.bin").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    push(work, "evil")
    report = agent.poll()
    reason, message = stalled(report)
    assert reason == "SourceFailed"
    assert "zeros.bin" in message
    assert "104,857,600 bytes" in message
    assert agent.pools == ["good"]
    assert agent.events[-1].reason == "SourceFailed"
    work.git("reset", "-q", "--hard", "HEAD~1")
    push(work, "mended")
    assert stalled(agent.poll()) == ("", "")
    assert agent.pools == ["mended"]


# -- what may be deleted ----------------------------------------------------------------------------------------------


def test_a_deletion_that_wants_it_is_confirmed_by_a_signed_trailer_of_that_commit(work: WorkTree, begin: Begin) -> None:
    """Not by an unsigned one, not by what the body says, nor by an earlier commit."""
    start = push(work, "old", deletion="Confirm")
    agent = begin()
    agent.poll()
    push(work, "new")
    reason, message = stalled(agent.poll())
    assert (reason, agent.pools) == ("Refused", ["old"])
    assert "it deletes nodepool/old, which want that confirmed" in message
    assert "or write Muster-Confirm-Deletion: nodepool/old into the commit" in message
    word = "Muster-Confirm-Deletion: nodepool/old"
    work.git("reset", "-q", "--hard", start)
    push(work, "new", "--no-gpg-sign", message=f"new\n\n{word}")
    assert stalled(agent.poll())[0] == "SourceFailed"
    for untold in (f"{word}\n\nis what the body says", "new\n\nMuster-Confirm-Deletion: nodepool/other"):
        work.git("reset", "-q", "--hard", start)
        push(work, "new", message=untold)
        assert stalled(agent.poll())[0] == "Refused"
    push(work, "new", message=f"now\n\nReviewed-by: bob\n{word}")
    push(work, "new", message="and more")
    assert stalled(agent.poll())[0] == "Refused", "the tip does not say it"
    push(work, "new", message=f"now\n\nReviewed-by: bob\n{word}")
    assert stalled(agent.poll()) == ("", "")
    assert agent.pools == ["new"]


def test_a_deletion_is_confirmed_by_two_revisions_as_well(work: WorkTree, begin: Begin) -> None:
    push(work, "old", deletion="Confirm")
    agent = begin()
    agent.poll()
    push(work, "old", deletion="Delete")
    agent.poll()
    push(work, "new")
    assert stalled(agent.poll()) == ("", "")
    assert agent.pools == ["new"]


def test_where_nobody_signs_a_trailer_is_a_word_against_slips(work: WorkTree, begin: Begin) -> None:
    push(work, "old", "--no-gpg-sign", deletion="Confirm")
    agent = begin(verification=None)
    agent.poll()
    push(work, "new", "--no-gpg-sign")
    assert stalled(agent.poll())[0] == "Refused"
    push(work, "new", "--no-gpg-sign", message="new\n\nmuster-confirm-deletion:  nodepool/OLD")
    assert stalled(agent.poll()) == ("", "")


def test_with_signed_tags_it_is_the_tag_that_says_it(work: WorkTree, begin: Begin, tmp_path: Path) -> None:
    push(work, "old", deletion="Confirm")
    work.git("tag", "-sm", "t", "v1.0.0")
    agent = begin(selector=SemVer("*"), verification=Verification(tmp_path / "signers", mode=Mode.TAG))
    agent.poll()
    push(work, "new", "--no-gpg-sign", message="new\n\nMuster-Confirm-Deletion: nodepool/old")
    work.git("tag", "-sm", "t", "v1.1.0")
    assert stalled(agent.poll())[0] == "Refused", "nobody has signed the commit"
    work.git("tag", "-sm", "t\n\nMuster-Confirm-Deletion: nodepool/old", "v1.2.0")
    assert stalled(agent.poll()) == ("", "")
    assert agent.pools == ["new"]
