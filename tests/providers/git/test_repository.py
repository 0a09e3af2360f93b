"""The mirror as a cache: fetched, pruned, replaced, repaired, cleaned; and never shared by two processes."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pygit2
import pytest

from providers.git.errors import (
    CacheUnavailable,
    OwnershipRejected,
    RemoteUnreachable,
    RepositoryTooLarge,
    RevisionNotFound,
    SourceError,
    UnsupportedRepository,
)
from providers.git.opening import check_owner, open_repository
from providers.git.repository import BareMirror
from tests.providers.git.support import MAIN, GitHttpServer, WorkTree

MakeMirror = Callable[..., BareMirror]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")


def names(mirror: BareMirror) -> list[str]:
    return sorted(entry.name for entry in mirror.root.iterdir())


def generations(mirror: BareMirror) -> list[str]:
    return [name for name in names(mirror) if name.startswith("mirror-")]


@pytest.mark.parametrize("form", ["path", "file", "http"])
def test_lists_and_fetches(work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer, form: str) -> None:
    work.git("tag", "-am", "t", "v1.0.0")
    url = {"path": str(work.path), "file": f"file://{work.path}", "http": f"{http_git.url}/work/.git"}[form]
    mirror = make_mirror(url)
    listed = mirror.list_remote()
    assert listed.pop("HEAD") == work.head()
    mirror.fetch([MAIN, "refs/tags/v1.0.0"])
    assert mirror.heads() == listed
    assert listed["refs/tags/v1.0.0^{}"] == work.head()
    assert work.head() in mirror.repository()


def test_nothing_is_fetched_by_listing(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path))
    mirror.list_remote()
    assert mirror.heads() == {}
    assert mirror.packs() == (0, 0)


def test_what_the_remote_lost_goes_and_a_branch_may_become_a_folder(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path))
    work.git("branch", "a")
    work.git("tag", "old")
    asked = [MAIN, "refs/heads/a", "refs/heads/a/b", "refs/tags/old"]
    mirror.fetch(asked)
    work.git("branch", "-D", "a")
    work.git("tag", "-d", "old")
    work.git("branch", "a/b")
    mirror.fetch(asked)
    assert list(mirror.heads()) == ["refs/heads/a/b", "refs/heads/main"]
    work.git("branch", "-D", "a/b")
    work.git("branch", "a")
    mirror.fetch(asked)
    assert list(mirror.heads()) == ["refs/heads/a", "refs/heads/main"]


@pytest.mark.parametrize("form", ["path", "http"])
def test_only_what_is_asked_for_is_fetched(
    work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer, form: str
) -> None:
    work.git("checkout", "-qb", "evil")
    evil = work.commit("evil.yaml", "evil")
    work.git("tag", "-am", "t", "v1.0.0")
    work.git("checkout", "-q", "main")
    mirror = make_mirror({"path": str(work.path), "http": f"{http_git.url}/work/.git"}[form])
    mirror.fetch([MAIN])
    assert mirror.heads() == {MAIN: work.head()}
    assert evil not in mirror.repository()


def test_what_is_in_force_outlives_its_branch_and_its_clone(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path))
    mirror.fetch([MAIN])
    old = work.commit("b.yaml", "b")
    mirror.fetch([MAIN])
    mirror.keep(old)
    work.git("reset", "-q", "--hard", "HEAD~1")
    new = work.commit("c.yaml", "c")
    work.git("reflog", "expire", "--expire=now", "--all")
    work.git("gc", "-q", "--prune=now")
    mirror.fetch([MAIN])
    mirror.reclone([MAIN])
    assert mirror.repository()[old].tree["b.yaml"].data == b"b"
    assert mirror.heads() == {MAIN: new, "refs/muster/in-force": old}


def test_packs_do_not_pile_up_and_a_reader_may_finish(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path), max_packs=4)
    seen = []
    reader = None
    for _ in range(8):
        work.commit()
        mirror.fetch([MAIN])
        reader = reader or mirror.repository()
        seen.append(mirror.packs()[0])
    assert max(seen) == 3
    assert min(seen[3:]) == 1
    assert len(generations(mirror)) <= 2
    before = mirror.repository()
    mirror.reclone([MAIN])
    assert before[work.head()].tree["a.yaml"].data
    assert set(names(mirror)) >= {"lock", "current", "home"}


def test_a_swap_that_fails_leaves_the_old_generation(work: WorkTree, make_mirror: MakeMirror, tmp_path: Path) -> None:
    mirror = make_mirror(str(work.path))
    mirror.fetch([MAIN])
    work.path.rename(tmp_path / "away")
    with pytest.raises(RemoteUnreachable):
        mirror.reclone([MAIN])
    assert mirror.heads()
    assert generations(mirror) == ["mirror-1"]


def test_housekeeping_that_fails_does_not_fail_the_fetch(
    work: WorkTree, make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = make_mirror(str(work.path), max_packs=1)

    def away(_extra: object = ()) -> None:
        raise RemoteUnreachable("gone")

    monkeypatch.setattr(mirror, "reclone", away)
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == work.head()


@pytest.mark.parametrize("damage", ["pack", "index", "head", "refs", "config", "all"])
def test_damage_heals(work: WorkTree, make_mirror: MakeMirror, damage: str) -> None:
    mirror = make_mirror(str(work.path))
    mirror.fetch([MAIN])
    current = (mirror.root / "current").resolve()
    if damage == "all":
        for path in current.rglob("*"):
            if path.is_file():
                path.unlink()
    else:
        pattern = {"pack": "*.pack", "index": "*.idx", "head": "HEAD", "refs": "main", "config": "config"}[damage]
        for path in current.rglob(pattern):
            path.chmod(0o600)
            path.write_bytes(b"garbage")
    work.commit()
    mirror.fetch([MAIN])
    if work.head() not in mirror.repository() or damage in {"pack", "index"}:
        mirror.reclone([MAIN])  # what GitSource does once reading fails
    assert mirror.repository()[work.head()].tree["a.yaml"].data
    assert mirror.heads()["refs/heads/main"] == work.head()


def test_leftovers_of_a_crash_are_removed_at_the_start(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path))
    mirror.fetch([MAIN])
    mirror.close()
    current = mirror.root / "current"
    litter = [
        current / "objects" / "pack" / "tmp_pack_x",
        current / "objects" / "pack" / "pack_git2_a1b2c3",
        current / "refs" / "heads" / "main.lock",
        current / "HEAD.lock",
        mirror.root / "mirror-7" / "objects" / "x",
        mirror.root / "current.new",
        mirror.root / "last-good.new",
        mirror.root / "merge-abc" / "HEAD",
    ]
    for path in litter:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    again = make_mirror(str(work.path))
    assert [path for path in litter if path.exists()] == []
    assert names(again) == ["current", "home", "lock", "mirror-1"]
    work.commit()
    again.fetch([MAIN])
    assert again.heads()["refs/heads/main"] == work.head()


def test_cleaning_takes_no_branch_for_litter(work: WorkTree, make_mirror: MakeMirror) -> None:
    for name in ("tmp_x", "pack_git2_x", "objects/tmp_y"):
        work.git("branch", name)
    mirror = make_mirror(str(work.path))
    mirror.fetch([MAIN, *(f"refs/heads/{name}" for name in ("tmp_x", "pack_git2_x", "objects/tmp_y"))])
    before = mirror.heads()
    mirror.close()
    assert make_mirror(str(work.path)).heads() == before
    assert len(before) == 4


def test_a_crash_between_clone_and_swap_loses_nothing(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path))
    mirror.fetch([MAIN])
    mirror.close()
    (mirror.root / "current").unlink()  # as if the link had never been made
    again = make_mirror(str(work.path))
    again.fetch([MAIN])
    assert again.heads()["refs/heads/main"] == work.head()


def test_two_processes_do_not_share_a_cache(work: WorkTree, make_mirror: MakeMirror) -> None:
    first = make_mirror(str(work.path))
    with pytest.raises(CacheUnavailable) as caught:
        make_mirror(str(work.path))
    assert caught.value.transient
    first.close()
    make_mirror(str(work.path)).fetch([MAIN])


def test_every_remote_has_a_cache_of_its_own(work: WorkTree, make_mirror: MakeMirror) -> None:
    assert make_mirror(str(work.path)).root != make_mirror(f"file://{work.path}").root


def test_a_cache_that_cannot_be_written(work: WorkTree, make_mirror: MakeMirror, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(CacheUnavailable):
        make_mirror(str(work.path))


def test_a_repository_that_is_too_large(work: WorkTree, make_mirror: MakeMirror) -> None:
    work.write("big.bin", os.urandom(200_000).hex())
    work.commit()
    mirror = make_mirror(str(work.path), max_bytes=50_000)
    with pytest.raises(RepositoryTooLarge):
        mirror.fetch([MAIN])
    assert mirror.heads() == {}


def test_a_growing_repository_is_stopped_at_the_cap(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path), max_bytes=150_000)
    work.write("one.bin", os.urandom(50_000).hex())
    work.commit()
    mirror.fetch([MAIN])
    for name in ("two.bin", "three.bin"):
        work.write(name, os.urandom(50_000).hex())
        work.commit()
    with pytest.raises(RepositoryTooLarge):
        mirror.fetch([MAIN])


def test_there_is_no_such_remote(make_mirror: MakeMirror, tmp_path: Path) -> None:
    with pytest.raises(RemoteUnreachable):
        make_mirror(str(tmp_path / "gone")).list_remote()


def test_sha256_repositories_are_refused_by_type(make_work: Callable[..., WorkTree], make_mirror: MakeMirror) -> None:
    work = make_work("modern", "--object-format=sha256")
    work.commit()
    with pytest.raises(UnsupportedRepository):
        make_mirror(str(work.path)).list_remote()
    with pytest.raises(UnsupportedRepository):
        open_repository(work.path)


def test_refs_beyond_branches_come_on_request(work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer) -> None:
    proposed = work.commit()
    work.git("update-ref", "refs/pull/42/head", proposed)
    work.git("reset", "-q", "--hard", "HEAD~1")
    mirror = make_mirror(f"{http_git.url}/work/.git")
    mirror.fetch([MAIN])
    assert proposed not in mirror.repository()
    mirror.fetch(["refs/pull/42/head"])
    assert mirror.heads()["refs/pull/42/head"] == proposed
    mirror.reclone(["refs/pull/42/head"])
    assert mirror.heads()["refs/pull/42/head"] == proposed


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_a_commit_no_branch_leads_to(
    work: WorkTree, make_mirror: MakeMirror, http_git: GitHttpServer, allowed: str
) -> None:
    work.git("config", "uploadpack.allowAnySHA1InWant", allowed)
    lost = work.commit()
    work.git("reset", "-q", "--hard", "HEAD~1")
    mirror = make_mirror(f"{http_git.url}/work/.git")
    mirror.fetch([MAIN])
    if allowed == "true":
        mirror.fetch_commit(lost)
        assert lost in mirror.repository()
    else:
        with pytest.raises(RevisionNotFound):
            mirror.fetch_commit(lost)


def test_a_branch_with_an_odd_name_does_not_stop_us(work: WorkTree, make_mirror: MakeMirror) -> None:
    head = work.head()
    heads = work.path / ".git" / "refs" / "heads"
    (heads / os.fsdecode(b"\xff\xfe")).write_text(head)
    mirror = make_mirror(str(work.path))
    assert mirror.list_remote()["refs/heads/main"] == head
    mirror.fetch([MAIN])
    assert mirror.heads()["refs/heads/main"] == head


@root_only
def test_a_repository_of_somebody_else(
    work: WorkTree, make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    mirror = make_mirror(str(work.path))
    for path in (work.path, work.path / ".git"):
        os.chown(path, 12_345, -1)
        with pytest.raises(OwnershipRejected, match="12345"):
            mirror.list_remote()
        with pytest.raises(OwnershipRejected):
            open_repository(work.path)
        os.chown(path, 0, -1)
    os.chown(work.path, 12_345, -1)
    monkeypatch.setenv("SUDO_UID", "12345")
    check_owner(work.path)


def test_four_threads_read_while_one_fetches(work: WorkTree, make_mirror: MakeMirror) -> None:
    mirror = make_mirror(str(work.path), max_packs=3)
    mirror.fetch([MAIN])
    oid, failures, stop = work.head(), [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                assert mirror.repository()[oid].tree["a.yaml"].data
            except (AssertionError, KeyError, SourceError, pygit2.GitError) as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        work.commit()
        mirror.fetch([MAIN])
    stop.set()
    for thread in threads:
        thread.join(10)
    assert failures == []


def test_the_address_decides_the_folder_not_the_password(make_mirror: MakeMirror) -> None:
    first = make_mirror("https://user:test@git.example.com/fleet.git")
    first.close()
    assert make_mirror("https://user:changed@git.example.com/fleet.git").root == first.root
    assert make_mirror("https://git.example.com/other.git").root != first.root
