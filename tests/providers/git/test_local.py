"""Repositories and folders of the user's own machine."""

import os
import threading
from pathlib import Path

import pytest

from providers.git.errors import CorruptRepository, MergeConflict, PathNotFound, RepositoryTooLarge, RevisionNotFound
from providers.git.files import FileLimits
from providers.git.local import open_local, read_directory
from providers.git.tree import scan_tree
from tests.providers.git.support import WorkTree


def test_plans_between_two_revisions(work: WorkTree) -> None:
    first = work.head()
    work.commit("b.yaml", "b")
    local = open_local(work.path)
    assert list(local.snapshot("main~1").files) == ["a.yaml"]
    assert list(local.snapshot().files) == ["a.yaml", "b.yaml"]
    assert local.snapshot(first[:7]).revision == f"sha1:{first}"
    assert local.resolve("HEAD~1") == first
    with pytest.raises(RevisionNotFound):
        local.snapshot("gone")


def test_from_a_folder_within(work: WorkTree) -> None:
    work.commit("fleet/prod/x.yaml", "x")
    local = open_local(work.path / "fleet" / "prod")
    assert (local.root, local.sub_path) == (work.path, "fleet/prod")
    assert list(local.snapshot().files) == ["fleet/prod/x.yaml"]
    assert list(local.working_files().files) == ["fleet/prod/x.yaml"]


def test_bare_linked_and_uncommitted(work: WorkTree) -> None:
    work.git("clone", "-q", "--bare", ".", "../bare.git")
    bare = open_local(work.path.parent / "bare.git")
    assert list(bare.snapshot("main").files) == ["a.yaml"]
    with pytest.raises(PathNotFound):
        bare.working_files()
    work.git("worktree", "add", "-q", "../linked", "-b", "other")
    assert list(open_local(work.path.parent / "linked").snapshot().files) == ["a.yaml"]
    work.write("new.yaml", "not committed")
    local = open_local(work.path)
    assert list(local.working_files().files) == ["a.yaml", "new.yaml"]
    assert list(local.snapshot().files) == ["a.yaml"]


def test_merging_leaves_the_repository_as_it_was(work: WorkTree) -> None:
    work.git("checkout", "-qb", "topic")
    work.commit("t.yaml", "t")
    work.git("checkout", "-q", "main")
    work.commit("m.yaml", "m")
    local = open_local(work.path)
    before = sorted(path for path in work.path.rglob("*"))
    assert list(local.merged_files("main", "topic").files) == ["a.yaml", "m.yaml", "t.yaml"]
    assert sorted(path for path in work.path.rglob("*")) == before
    work.commit("t.yaml", "other")
    with pytest.raises(MergeConflict):
        local.merged_files("main", "topic")


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(CorruptRepository):
        open_local(tmp_path)


def test_an_empty_repository_has_no_revision(tmp_path: Path, work: WorkTree) -> None:
    work.git("init", "-q", "../empty")
    with pytest.raises(RevisionNotFound):
        open_local(tmp_path / "empty").snapshot()


def test_a_folder_reads_as_its_commit_does(work: WorkTree) -> None:
    for name in ("x/b.yaml", "x/c.yml", "x/d.txt", "x/.musterignore", "e/f/g.yaml", "x/skip/h.yaml"):
        work.write(name, "skip/\n" if name.endswith("ignore") else name)
    (work.path / "link.yaml").symlink_to("a.yaml")
    (work.path / "up").symlink_to("..")
    oid = work.commit_all()
    from_git = scan_tree(open_local(work.path).repo, oid)
    assert read_directory(work.path) == from_git
    assert read_directory(work.path, "x").files.keys() == {"x/b.yaml", "x/c.yml"}


def test_links_and_special_files_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "fleet"
    root.mkdir()
    (tmp_path / "secret.yaml").write_text("secret")
    (root / "a.yaml").symlink_to(tmp_path / "secret.yaml")
    (root / "out").symlink_to(tmp_path)
    os.mkfifo(root / "pipe.yaml")
    found = read_directory(root)
    assert found.files == {}
    assert {one.path: one.reason for one in found.skipped} == {
        "a.yaml": "symbolic link: not followed",
        "out": "symbolic link: not followed",
        "pipe.yaml": "special file: not followed",
    }


@pytest.mark.parametrize("sub_path", ["gone", "..", "a.yaml", "x/../.."])
def test_folders_that_are_not_there_or_outside(tmp_path: Path, sub_path: str) -> None:
    (tmp_path / "a.yaml").write_text("x")
    with pytest.raises(PathNotFound):
        read_directory(tmp_path, sub_path)


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    """The folder is replaced between listing and reading, again and again."""
    outside, root = tmp_path / "outside", tmp_path / "fleet"
    for path, text in ((outside, "secret"), (root / "d", "ours")):
        path.mkdir(parents=True)
        (path / "x.yaml").write_text(text)
    (tmp_path / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "d").rename(tmp_path / "kept")
            (tmp_path / "link").rename(root / "d")
            (root / "d").rename(tmp_path / "link")
            (tmp_path / "kept").rename(root / "d")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            try:
                assert b"secret" not in read_directory(root).files.values()
            except PathNotFound:
                continue
    finally:
        stop.set()
        thread.join(10)


def test_limits_hold_for_folders(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("1234")
    for limits in (
        FileLimits(max_files=1),
        FileLimits(max_file_bytes=3),
        FileLimits(max_bytes=7),
        FileLimits(max_entries=1),
    ):
        with pytest.raises(RepositoryTooLarge):
            read_directory(tmp_path, limits=limits)


def test_handles_are_closed(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / str(index) / "x").mkdir(parents=True)
        (tmp_path / str(index) / "x" / "a.yaml").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        read_directory(tmp_path)
    with pytest.raises(RepositoryTooLarge):
        read_directory(tmp_path, limits=FileLimits(max_files=3))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
