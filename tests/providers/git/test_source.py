"""The source end to end: real repositories, real fetches, and what stays in force when they fail."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.clock import VirtualClock
from providers.git.auth import Remote
from providers.git.errors import (
    CacheUnavailable,
    CorruptRepository,
    MergeConflict,
    PathNotFound,
    RemoteUnreachable,
    RepositoryTooLarge,
    RevisionNotFound,
    SignatureRejected,
)
from providers.git.files import FileLimits
from providers.git.limits import MirrorLimits, ReaderLimits
from providers.git.messages import FindRevision, ReaderStart, RevisionRead
from providers.git.reader import RepositoryReader
from providers.git.repository import BareMirror
from providers.git.selector import Branch, Commit, Ref, SemVer, Tag
from providers.git.settings import GitSettings
from providers.git.signature import Mode
from providers.git.source import GitSource
from providers.git.trust import Verification
from tests.providers.git.support import ENVIRONMENT, GitHttpServer, WorkTree


@pytest.fixture
def make_source(work: WorkTree, tmp_path: Path, clock: VirtualClock) -> Iterator[Callable[..., GitSource]]:
    made: list[GitSource] = []

    def make(**settings: object) -> GitSource:
        remote = settings.pop("remote", None) or Remote(str(work.path))
        all_settings = GitSettings(remote=remote, cache_dir=tmp_path / "cache", **settings)  # type: ignore[arg-type]
        made.append(GitSource(all_settings, clock, random.Random(1)))
        return made[-1]

    yield make
    for source in made:
        source.close()


MakeSource = Callable[..., GitSource]


def test_a_snapshot_says_everything_once(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source()
    first = source.poll()
    assert first is not None
    assert first == source.last_good
    assert first.revision == f"main@sha1:{work.head()}"
    assert (first.oid, first.tree_oid) == (work.head(), work.head("HEAD^{tree}"))
    assert first.files == {"a.yaml": f"n: {work.seconds}\n".encode()}
    assert first.committed_at == datetime.fromtimestamp(work.seconds, UTC)
    assert first.author == "Ada <ada@example.com>"
    assert first.verified_signer is None
    assert source.poll() is None
    work.commit()
    second = source.poll()
    assert second is not None
    assert second.oid == work.head() != first.oid
    assert second.lineage is not None
    assert second.lineage.refusal(first.revision) == ""
    assert source.poll() is None


def test_a_commit_outside_the_folder_keeps_the_tree(work: WorkTree, make_source: MakeSource) -> None:
    work.commit("fleet/x.yaml", "x")
    source = make_source(sub_path="fleet")
    first = source.poll()
    work.commit("README.md", "x")
    second = source.poll()
    assert first is not None
    assert second is not None
    assert (first.tree_oid, first.files) == (second.tree_oid, second.files)
    assert first.revision != second.revision


def _open_sources(make_source: MakeSource) -> list[GitSource]:
    made: list[GitSource] = next(
        cell.cell_contents for cell in make_source.__closure__ or () if isinstance(cell.cell_contents, list)
    )
    return made


def test_another_interval_counts_from_the_next_poll_on(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source(interval_s=60.0, jitter=0.0, max_backoff_s=400.0)
    source.poll()
    assert not source.look_every(60.0)
    assert source.look_every(3600.0)
    assert source.poll() is None
    assert source.next_poll_s == 3600.0, "longer than any pause after a failure"
    work.path.rename(work.path.with_name("away"))
    with pytest.raises(RemoteUnreachable):
        source.poll()
    assert source.next_poll_s <= 1.25 * 3600.0, "a failure makes no pause shorter, nor days long"


def test_an_unreachable_remote_keeps_the_last_good_and_backs_off(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source(interval_s=60.0, jitter=0.0, max_backoff_s=400.0)
    good = source.poll()
    assert source.next_poll_s == 60.0
    away = work.path.with_name("away")
    work.path.rename(away)
    waits = []
    for _ in range(6):
        with pytest.raises(RemoteUnreachable) as caught:
            source.poll()
        assert caught.value.transient
        assert source.last_good is good
        waits.append(source.next_poll_s)
    assert all(
        0.75 * base <= wait <= 1.25 * base for wait, base in zip(waits, [120, 240, 400, 400, 400, 400], strict=True)
    )
    away.rename(work.path)
    assert source.poll() is None
    assert source.next_poll_s == 60.0


def test_restore_starts_from_the_cache_when_the_remote_is_away(work: WorkTree, make_source: MakeSource) -> None:
    with pytest.raises(RevisionNotFound):
        make_source(sub_path="").restore()
    source = _open_sources(make_source)[0]
    good = source.poll()
    assert good is not None
    source.adopted(good.revision)
    source.close()
    work.path.rename(work.path.with_name("away"))
    again = make_source()
    assert again.restore() == good == again.last_good
    with pytest.raises(RemoteUnreachable):
        again.poll()
    assert again.last_good == good


def test_restore_verifies_anew(work: WorkTree, make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source()
    good = source.poll()
    assert good is not None
    source.adopted(good.revision)
    source.close()
    (tmp_path / "signers").write_text("")
    with pytest.raises(SignatureRejected):
        make_source(verification=Verification(tmp_path / "signers")).restore()


@pytest.fixture
def signers(tmp_path: Path) -> Path:
    """A list outside the repository with the key `key`, which `sign` uses."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True, env=ENVIRONMENT
    )
    path = tmp_path / "signers"
    path.write_text(f"ada@example.com {key.with_name('key.pub').read_text()}")
    return path


def signing(work: WorkTree, signers: Path) -> WorkTree:
    work.git("config", "gpg.format", "ssh")
    work.git("config", "user.signingkey", str(signers.with_name("key")))
    return work


def test_an_unsigned_commit_changes_nothing(work: WorkTree, make_source: MakeSource, signers: Path) -> None:
    signing(work, signers).commit("a.yaml", "signed", "-S")
    source = make_source(verification=Verification(signers))
    good = source.poll()
    assert good is not None
    assert good.verified_signer == "ada@example.com"
    work.commit()
    for _ in range(2):
        with pytest.raises(SignatureRejected) as caught:
            source.poll()
        assert not caught.value.transient
        assert source.last_good is good
    work.commit("a.yaml", "again", "-S")
    better = source.poll()
    assert better is not None
    assert better.files["a.yaml"] == b"again"


def test_a_signer_added_later_lets_the_waiting_revision_in(
    work: WorkTree, make_source: MakeSource, signers: Path
) -> None:
    signing(work, signers).commit("a.yaml", "signed", "-S")
    listed = signers.read_text()
    signers.write_text("")
    source = make_source(verification=Verification(signers))
    with pytest.raises(SignatureRejected):
        source.poll()
    signers.write_text(listed)
    assert source.poll() is not None


def test_a_tag_signed_again_is_fetched_again(work: WorkTree, make_source: MakeSource, signers: Path) -> None:
    signing(work, signers).git("tag", "-am", "t", "v1.0.0")
    source = make_source(selector=SemVer("1"), verification=Verification(signers, Mode.TAG))
    with pytest.raises(SignatureRejected, match="not signed"):
        source.poll()
    work.git("tag", "-fsm", "t", "v1.0.0")
    snapshot = source.poll()
    assert snapshot is not None
    assert (snapshot.revision, snapshot.verified_signer) == (f"v1.0.0@sha1:{work.head()}", "ada@example.com")


def test_the_list_of_signers_must_lie_outside(work: WorkTree, tmp_path: Path) -> None:
    for place in (tmp_path / "cache" / "signers", work.path / "signers"):
        with pytest.raises(ValueError, match="outside"):
            GitSettings(Remote(str(work.path)), tmp_path / "cache", verification=Verification(place))
    (tmp_path / "link").symlink_to(work.path / "signers")
    with pytest.raises(ValueError, match="outside"):
        GitSettings(Remote(str(work.path)), tmp_path / "cache", verification=Verification(tmp_path / "link"))


@pytest.mark.parametrize("bad", [{"interval_s": 0.0}, {"jitter": 1.0}, {"jitter": -0.1}, {"max_backoff_s": 1.0}])
def test_settings_that_cannot_work(tmp_path: Path, bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="interval_s"):
        GitSettings(Remote("https://git.example.com/x"), tmp_path, **bad)  # type: ignore[arg-type]


def test_a_version_range_follows_new_tags(work: WorkTree, make_source: MakeSource) -> None:
    work.git("tag", "v1.0.0")
    source = make_source(selector=SemVer("^1"))
    assert source.poll() is not None
    work.commit()
    assert source.poll() is None
    work.git("tag", "v1.1.0")
    work.git("tag", "v2.0.0")
    snapshot = source.poll()
    assert snapshot is not None
    assert snapshot.revision.startswith("v1.1.0@")
    work.git("tag", "-d", "v1.1.0")
    back = source.poll()
    assert back is not None
    assert back.revision.startswith("v1.0.0@")


def test_a_tag_that_disappears_leaves_the_last_good(work: WorkTree, make_source: MakeSource) -> None:
    work.git("tag", "v1")
    source = make_source(selector=Tag("v1"))
    good = source.poll()
    work.git("tag", "-d", "v1")
    with pytest.raises(RevisionNotFound):
        source.poll()
    assert source.last_good is good


def test_a_pinned_commit_needs_the_network_once(work: WorkTree, make_source: MakeSource) -> None:
    pinned = work.head()
    work.commit()
    source = make_source(selector=Commit(pinned, "main"))
    snapshot = source.poll()
    assert snapshot is not None
    assert snapshot.revision == f"main@sha1:{pinned}"
    source.close()
    work.path.rename(work.path.with_name("away"))
    again = make_source(selector=Commit(pinned, "main"))
    assert again.poll() == snapshot
    assert again.poll() is None


def test_a_pinned_commit_that_nobody_has(make_source: MakeSource) -> None:
    with pytest.raises(RevisionNotFound):
        make_source(selector=Commit("1" * 40)).poll()


@pytest.mark.parametrize("kind", ["blob", "tree"])
def test_a_pinned_object_must_be_a_commit(work: WorkTree, make_source: MakeSource, kind: str) -> None:
    oid = work.head({"blob": "HEAD:a.yaml", "tree": "HEAD^{tree}"}[kind])
    with pytest.raises(RevisionNotFound):
        make_source(selector=Commit(oid)).poll()


def test_a_ref_by_name(work: WorkTree, make_source: MakeSource) -> None:
    proposed = work.commit()
    work.git("update-ref", "refs/pull/42/head", proposed)
    work.git("reset", "-q", "--hard", "HEAD~1")
    source = make_source(selector=Ref("refs/pull/42/head"))
    snapshot = source.poll()
    assert snapshot is not None
    assert snapshot.revision == f"refs/pull/42/head@sha1:{proposed}"
    assert source.poll() is None


def test_a_proposal_is_planned_as_merged(work: WorkTree, make_source: MakeSource, http_git: GitHttpServer) -> None:
    work.git("checkout", "-qb", "topic")
    proposed = work.commit("new.yaml", "new")
    work.git("update-ref", "refs/pull/7/head", proposed)
    work.git("checkout", "-q", "main")
    work.git("branch", "-qD", "topic")
    base = work.commit("main.yaml", "main")
    source = make_source(remote=Remote(f"{http_git.url}/work/.git"))
    source.poll()
    with pytest.raises(RevisionNotFound):
        source.revision(proposed)
    assert source.fetch_ref("refs/pull/7/head") == proposed
    assert list(source.revision(proposed).files) == ["a.yaml", "new.yaml"]
    assert list(source.merged_files(base, proposed).files) == ["a.yaml", "main.yaml", "new.yaml"]
    work.git("update-ref", "refs/pull/8/head", work.commit("new.yaml", "other"))
    other = source.fetch_ref("refs/pull/8/head")
    source.fetch_ref("refs/pull/7/head")
    with pytest.raises(MergeConflict):
        source.merged_files(other, proposed)
    with pytest.raises(RevisionNotFound):
        source.fetch_ref("refs/pull/9/head")


def test_revisions_by_name(work: WorkTree, make_source: MakeSource) -> None:
    first = work.head()
    second = work.commit()
    source = make_source()
    snapshot = source.poll()
    assert snapshot is not None
    for text, oid in {
        "HEAD": second, "HEAD~1": first, "HEAD^": first, "@": second, "@~1": first, "main": second, "main~1": first,
        first: first, first[:8]: first, snapshot.revision: second,
        f"sha1:{first}": first,
    }.items():  # fmt: skip
        assert source.resolve(text) == oid, text
    for text in (
        "",
        "gone",
        "HEAD~9",
        "HEAD:a.yaml",
        ":/change",
        "1" * 40,
        "main@{1 day ago}",
        "a b",
        "HEADS",
        "x" * 300,
        "\x00",
    ):
        with pytest.raises(RevisionNotFound):
            source.resolve(text)


@pytest.mark.parametrize("damage", ["pack", "everything", "link"])
def test_a_damaged_cache_heals_within_the_poll(
    work: WorkTree, make_source: MakeSource, tmp_path: Path, damage: str
) -> None:
    source = make_source()
    source.poll()
    root = next((tmp_path / "cache").iterdir())
    work.commit("b.yaml", "b")
    if damage == "link":
        (root / "current").unlink()
    for path in (root / "current" / "objects").rglob("*"):
        if path.is_file() and (damage == "everything" or path.suffix == ".pack"):
            path.chmod(0o600)
            path.write_bytes(b"garbage")
    snapshot = source.poll()
    assert snapshot is not None
    assert list(snapshot.files) == ["a.yaml", "b.yaml"]


def test_a_remote_that_is_damaged_itself_is_an_error_not_a_loop(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source()
    good = source.poll()
    work.commit()
    blob = work.head("HEAD:a.yaml")
    (work.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises((CorruptRepository, RemoteUnreachable)):
        source.poll()
    assert source.last_good is good


def test_a_folder_that_was_renamed_is_no_empty_fleet(work: WorkTree, make_source: MakeSource) -> None:
    work.commit("fleet/x.yaml", "x")
    source = make_source(sub_path="fleet")
    good = source.poll()
    work.git("mv", "fleet", "fleets")
    work.commit_all()
    with pytest.raises(PathNotFound):
        source.poll()
    assert source.last_good is good


def test_limits_reach_the_poll(work: WorkTree, make_source: MakeSource) -> None:
    work.commit("b.yaml", "b")
    with pytest.raises(RepositoryTooLarge):
        make_source(files=FileLimits(max_files=1)).poll()
    _open_sources(make_source)[0].close()
    work.write("c.bin", os.urandom(100_000).hex())
    work.commit()
    with pytest.raises(RepositoryTooLarge):
        make_source(mirror=MirrorLimits(max_bytes=10_000)).poll()


def test_a_remote_that_moves_on_while_we_fetch(
    work: WorkTree, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = BareMirror.fetch

    def late(mirror: BareMirror, names: Sequence[str]) -> None:
        work.git("reset", "-q", "--hard", "HEAD~1")
        work.commit("z.yaml", "z")
        fetch(mirror, names)

    work.commit()
    monkeypatch.setattr(BareMirror, "fetch", late)
    start = ReaderStart(Remote(str(work.path)), tmp_path / "cache", MirrorLimits(), ReaderLimits())
    reader = RepositoryReader(start, clock, lambda _said: None)
    answer = reader.answer(FindRevision(Branch(), "", FileLimits()))
    reader.close()
    assert isinstance(answer, RevisionRead)
    assert (answer.tip.oid, list(answer.files)) == (work.head(), ["a.yaml", "z.yaml"])


def test_a_revision_that_was_read_is_not_kept_back_by_a_full_disk(
    make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source()

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    snapshot = source.poll()
    assert snapshot is not None
    source.adopted(snapshot.revision)
    assert snapshot is source.last_good


def test_merging_leaves_nothing_in_the_cache(work: WorkTree, make_source: MakeSource, tmp_path: Path) -> None:
    work.git("checkout", "-qb", "topic")
    head = work.commit("t.yaml", "t")
    work.git("update-ref", "refs/pull/1/head", head)
    work.git("checkout", "-q", "main")
    source, base = make_source(), work.commit("m.yaml", "m")
    source.poll()
    source.fetch_ref("refs/pull/1/head")
    before = sorted((tmp_path / "cache").rglob("*"))
    assert len(source.merged_files(base, head).files) == 3
    assert sorted((tmp_path / "cache").rglob("*")) == before


def test_two_agents_do_not_share_a_cache(make_source: MakeSource) -> None:
    make_source().poll()
    with pytest.raises(CacheUnavailable):
        make_source().poll()


def test_a_hostile_author_cannot_write_to_the_terminal(work: WorkTree, make_source: MakeSource) -> None:
    # git strips what it dislikes from names, so the object is made by hand.
    raw = work.git("cat-file", "commit", "HEAD").replace("Ada", "A\x1b[31m\u202eda") + "\n"
    oid = work.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.encode())
    work.git("update-ref", "refs/heads/main", oid)
    snapshot = make_source().poll()
    assert snapshot is not None
    assert snapshot.author == "A\ufffd[31m\ufffdda <ada@example.com>"


def test_a_commit_from_the_end_of_time(work: WorkTree, make_source: MakeSource) -> None:
    raw = work.git("cat-file", "commit", "HEAD").replace(str(work.seconds), str(2**40)) + "\n"
    oid = work.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.encode())
    work.git("update-ref", "refs/heads/main", oid)
    snapshot = make_source().poll()
    assert snapshot is not None
    assert snapshot.committed_at.year == 9999


@given(st.integers(0, 200), st.floats(0, 0.999), st.floats(0, 0.9))
def test_waits_are_positive_and_bounded(failures: int, drawn: float, jitter: float) -> None:
    class FixedRng:
        def random(self) -> float:
            return drawn

    source = GitSource.__new__(GitSource)
    source._settings = GitSettings(Remote("https://git.example.com/x"), Path("cache"), interval_s=10, jitter=jitter)
    source._rng, source._failures, source._every_s = FixedRng(), failures, 10.0
    spread = max(jitter, 0.25) if failures else jitter
    assert 10 * (1 - spread) <= source._wait() <= 900 * (1 + spread)
