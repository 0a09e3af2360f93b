"""Pushes that are meant to hurt: huge objects, on any branch, in any disguise. The agent itself inflates none."""

import itertools
import os
import random
import resource
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.clock import VirtualClock
from providers.git.auth import Remote
from providers.git.errors import CacheUnavailable, CorruptRepository, RepositoryTooLarge, SourceError
from providers.git.files import FileLimits
from providers.git.limits import MirrorLimits, ReaderLimits
from providers.git.packscan import PackScan
from providers.git.settings import GitSettings
from providers.git.source import GitSource
from tests.providers.git.support import ENVIRONMENT, MAIN, GitHttpServer, WorkTree

MIB = 1024 * 1024
MakeSource = Callable[..., GitSource]
FORMS = ["path", "http"]


@pytest.fixture
def make_source(
    work: WorkTree, tmp_path: Path, clock: VirtualClock, http_git: GitHttpServer
) -> Iterator[Callable[..., GitSource]]:
    made: list[GitSource] = []

    def make(form: str = "path", **given: object) -> GitSource:
        remote = Remote({"path": str(work.path), "http": f"{http_git.url}/work/.git"}[form])
        mirror = MirrorLimits(max_object_bytes=8 * MIB)
        wanted = GitSettings(remote, tmp_path / "cache", **{"mirror": mirror, **given})  # type: ignore[arg-type]
        made.append(GitSource(wanted, clock, random.Random(1)))
        return made[-1]

    yield make
    for source in made:
        source.close()


def zeros(work: WorkTree, name: str, size: int, end: bytes = b"") -> str:
    """Commit a file of zeros; its blob."""
    with (work.path / name).open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(end)
    work.seconds += 1
    work.commit_all()
    (work.path / name).unlink()
    return work.head(f"HEAD:{name}")


def memory_mib(field: str) -> float:
    """Of this process: `VmRSS`, what it has now; `VmHWM`, its peak since that was last forgotten."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def growth_mib(work: Callable[[], object]) -> float:
    """How much memory this process takes for something at most, whatever other tests have left in it."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mib("VmRSS")
    work()
    return memory_mib("VmHWM") - before


def largest_child_mib() -> float:
    """Of all processes that have ended: one of an earlier test may be larger than those of this one."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["branch", "tag of a blob", "annotated tag"])
def test_what_lies_on_another_ref_does_not_reach_us(
    work: WorkTree, make_source: MakeSource, form: str, where: str
) -> None:
    work.git("checkout", "-qb", "evil")
    giant = zeros(work, "zeros.bin", 100 * MIB)
    if where != "branch":
        work.git("tag", *(["-am", "t"] if where == "annotated tag" else []), "v9.9.9", giant)
    work.git("checkout", "-q", "main")
    if where != "branch":
        work.git("branch", "-qD", "evil")
    source = make_source(form)
    assert growth_mib(source.poll) < 64
    assert source.last_good is not None
    assert source.last_good.oid == work.head()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["zeros.bin", "pools/zeros.yaml"])
def test_a_huge_object_on_the_selected_branch_is_named_once_and_not_fetched_again(
    work: WorkTree, make_source: MakeSource, http_git: GitHttpServer, form: str, name: str
) -> None:
    source = make_source(form)
    good = source.poll()
    (work.path / "pools").mkdir()
    giant = zeros(work, name, 100 * MIB)
    with pytest.raises(RepositoryTooLarge, match=rf"{giant}.* 104,857,600 bytes .*larger than .*8,388,608") as caught:
        source.poll()
    assert not caught.value.transient
    if form == "path":
        assert name in str(caught.value)
    fetched = sum(path.endswith("/git-upload-pack") for path, _ in http_git.seen)
    for _ in range(3):
        with pytest.raises(RepositoryTooLarge, match=giant):
            source.poll()
    assert sum(path.endswith("/git-upload-pack") for path, _ in http_git.seen) == fetched
    assert source.last_good is good
    assert source.next_poll_s < 100, "asking where the ref stands costs little: the mended tip is found soon"
    work.git("reset", "-q", "--hard", "HEAD~1")
    work.commit()
    mended = source.poll()
    assert mended is not None
    assert mended.oid == work.head()


def test_two_huge_objects_that_differ_little_are_met_as_a_delta(
    work: WorkTree, make_source: MakeSource, http_git: GitHttpServer
) -> None:
    """libgit2 would load the base and what comes of it, to put one together from the other."""
    work.git("config", "core.bigFileThreshold", "1g")
    source = make_source("http", mirror=MirrorLimits(max_object_bytes=20 * MIB))
    source.poll()
    zeros(work, "one.bin", 40 * MIB)
    zeros(work, "two.bin", 40 * MIB, b"x")
    work.git("repack", "-adfq")
    before = largest_child_mib()
    with pytest.raises(RepositoryTooLarge, match="bytes"):
        source.poll()
    assert largest_child_mib() < max(before + 1, 2048)


@pytest.mark.parametrize("form", FORMS)
def test_a_commit_that_is_a_book(work: WorkTree, make_source: MakeSource, form: str) -> None:
    source = make_source(form)
    good = source.poll()
    (work.path / "a.yaml").write_text("n: 2\n")
    work.git("add", "-A")
    work.git("commit", "-qF", "-", stdin=b"subject\n\n" + b"x" * 2 * MIB)
    with pytest.raises(RepositoryTooLarge, match=work.head()):
        source.poll()
    assert source.last_good is good


def test_a_mirror_that_holds_a_huge_file_already_is_bounded_by_memory(work: WorkTree, make_source: MakeSource) -> None:
    """An earlier version fetched it: whatever is done with the mirror, the reader cannot grow."""
    lax = MirrorLimits(max_object_bytes=2 * 1024 * MIB)
    files = FileLimits(max_bytes=1024 * MIB, max_file_bytes=1024 * MIB)
    zeros(work, "zeros.yaml", 300 * MIB)
    limits = ReaderLimits(memory_bytes=350 * MIB)
    before = largest_child_mib()
    with pytest.raises(RepositoryTooLarge) as caught:
        make_source("http", mirror=lax, files=files, reader=limits).poll()
    assert "memory" in str(caught.value)
    assert largest_child_mib() < max(before + 1, 512)


def test_time_on_the_processor_is_bounded_and_the_object_named(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source("http")
    good = source.poll()
    zeros(work, "zeros.bin", 600 * MIB)
    source.close()
    source = make_source("http", reader=ReaderLimits(cpu_s=0.8))
    with pytest.raises(RepositoryTooLarge, match=r"blob of 629,145,600 bytes .* took more than 0.8 s of CPU time"):
        source.poll()
    with pytest.raises(RepositoryTooLarge, match=r"more than 0\.8 s of CPU time"):
        source.poll()
    assert good is not None


def test_a_reader_that_is_killed_is_replaced(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source()
    source.poll()
    process = source._reader._process
    assert process is not None
    os.kill(process.pid, signal.SIGTERM)
    process.wait()
    work.commit()
    with pytest.raises(CacheUnavailable, match="ended") as caught:
        source.poll()
    assert caught.value.transient
    assert source.poll() is not None
    running = source._reader._process
    assert running is not None
    source.close()
    assert running.returncode is not None


def test_a_reader_lets_go_of_the_packs_of_those_before(work: WorkTree, make_source: MakeSource) -> None:
    """A request that was pushed to a thousand times had it run out of file descriptors in the middle of a merge."""
    source = make_source("http", mirror=MirrorLimits(max_packs=3))
    main = work.head()
    for n in range(30):
        work.commit(text=f"n: {n}\n")
        source.merged_files(main, source.fetch_ref(MAIN))
    process = source._reader._process
    assert process is not None
    held = [it.readlink() for it in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert len([it for it in held if ".pack" in it.name]) <= 2 * 3


def test_the_end_of_the_agent_waits_for_no_answer(tmp_path: Path, clock: VirtualClock, silent_port: int) -> None:
    remote = Remote(f"http://127.0.0.1:{silent_port}/fleet.git")
    source = GitSource(GitSettings(remote, tmp_path / "cache"), clock, random.Random(1))
    asked: list[SourceError] = []

    def ask() -> None:
        try:
            source.poll()
        except SourceError as error:
            asked.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: source._reader._process is not None)
    process = source._reader._process
    assert process is not None
    source.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [error.transient for error in asked] == [True]
    assert process.returncode is not None
    with pytest.raises(CacheUnavailable, match="closed"):
        source.poll()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


def test_credentials_are_neither_arguments_nor_environment(work: WorkTree, make_source: MakeSource) -> None:
    source = make_source()
    source.poll()
    process = source._reader._process
    assert process is not None
    assert process.args == [*process.args[:1], "-P", "-m", "providers.git.worker"]
    environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    assert {line.partition(b"=")[0] for line in environment if line} <= {
        b"PATH", b"LANG", b"LC_ALL", b"TZ", b"TMPDIR", b"SSL_CERT_FILE", b"SSL_CERT_DIR", b"SUDO_UID", b"PYTHONPATH",
        b"HOME",
    }  # fmt: skip


def test_trouble_that_costs_much_is_followed_by_rest(work: WorkTree, tmp_path: Path) -> None:
    """A webhook after each push must not make the agent work all the time on what cannot be read."""

    class SlowClock(VirtualClock):
        def monotonic(self) -> float:
            self.advance(20.0)
            return super().monotonic()

    clock = SlowClock()
    settings = GitSettings(
        Remote(str(work.path)), tmp_path / "cache", sub_path="gone", interval_s=10.0, mirror=MirrorLimits()
    )
    source = GitSource(settings, clock, random.Random(1))
    seen: list[SourceError] = []
    for _ in range(3):
        work.commit()
        with pytest.raises(SourceError) as caught:
            source.poll()
        seen.append(caught.value)
    source.close()
    assert seen[0] is seen[1] is seen[2], "the second and third are not asked for: it rests"
    assert source.next_poll_s > 10


# -- the look into a pack ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Packs of git's own making: whole objects, deltas by offset and by reference, tags."""
    path = tmp_path_factory.mktemp("packs")
    work = WorkTree(path)
    work.git("init", "-q", "-b", "main")
    rng = random.Random(7)
    text = [f"line {rng.random()}\n" for _ in range(2000)]
    for number in range(6):
        text[number * 100] = f"changed {number}\n"
        work.commit("a.yaml", "".join(text))
        work.commit(f"f{number}.bin", "")
    work.git("tag", "-am", "t", "v1")
    made = []
    for flags in (["--delta-base-offset"], [], ["--window=0"], ["--thin"]):
        done = subprocess.run(
            ["git", "pack-objects", "-q", "--stdout", "--revs", "--all", *flags],
            cwd=path,
            env=ENVIRONMENT,
            input=b"",
            capture_output=True,
            check=True,
        )
        made.append(done.stdout)
    return made


def feed(scan: PackScan, content: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(content), *(cut % len(content) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        scan.feed(content[start:end])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.lists(st.integers(0, 10**6), max_size=30))
def test_a_pack_may_arrive_in_any_pieces(packs: list[bytes], which: int, cuts: list[int]) -> None:
    feed(PackScan(MIB), packs[which], cuts)
    with pytest.raises(RepositoryTooLarge, match="bytes"):
        feed(PackScan(10_000), packs[which], cuts)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3), st.integers(0, 10**6), st.integers(1, 255), st.lists(st.integers(0, 10**6), max_size=5))
def test_a_pack_that_is_damaged_is_called_that_or_passed_on(
    packs: list[bytes], which: int, place: int, flip: int, cuts: list[int]
) -> None:
    content = bytearray(packs[which])
    content[place % len(content)] ^= flip
    try:
        feed(PackScan(MIB), bytes(content), cuts)
    except (CorruptRepository, RepositoryTooLarge):
        return


def number(value: int) -> bytes:
    """A size as packs write it: seven bits a byte, the least first."""
    out = bytearray()
    while value >> 7:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("base", [10, 2**34])
@pytest.mark.parametrize("kind", [6, 7], ids=["by offset", "by reference"])
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_both_ends_of_a_delta_are_measured(base: int, kind: int, cut: int) -> None:
    """A few bytes that stand for gigabytes: libgit2 would allocate them before it looked further."""
    made = 2**34 if base == 10 else 10
    delta = number(base) + number(made) + b"\x90\x01"
    assert len(delta) < 15
    where = b"\x10" if kind == 6 else b"\1" * 20
    pack = b"PACK" + (2).to_bytes(4) + (1).to_bytes(4) + bytes([kind << 4 | len(delta)]) + where + zlib.compress(delta)
    with pytest.raises(RepositoryTooLarge, match=r"an object of 17,179,869,184 bytes \(object 1 of 1"):
        feed(PackScan(64 * MIB), pack, list(range(0, len(pack), cut)))


def test_the_name_is_the_one_git_gives(packs: list[bytes], tmp_path: Path) -> None:
    heard: list[str] = []
    with pytest.raises(RepositoryTooLarge) as caught:
        PackScan(10_000, heard.append).feed(packs[2])
    (tmp_path / "x.pack").write_bytes(packs[2])
    subprocess.run(["git", "index-pack", "x.pack"], cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    listed = subprocess.run(
        ["git", "verify-pack", "-v", "x.idx"], cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True, text=True
    ).stdout
    sizes = {line.split()[0]: int(line.split()[2]) for line in listed.splitlines() if " blob " in line}
    name = str(caught.value).partition(",")[0]
    assert sizes[name] > 10_000
    assert f"blob of {sizes[name]:,} bytes" in heard[0]
