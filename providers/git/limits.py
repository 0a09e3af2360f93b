"""How much a repository may cost us. Far above any fleet's, far below what would hurt the agent."""

import resource
import signal
from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True)
class MirrorLimits:
    """How long the remote may take (seconds), how big the mirror may be, and when it is cloned afresh (packs)."""

    connect_timeout_s: float = 10.0
    read_timeout_s: float = 30.0
    deadline_s: float = 300.0
    max_bytes: int = 500 * _MIB
    max_packs: int = 50
    max_object_bytes: int = 64 * _MIB
    """Largest object of the history, of any kind, inflated."""


@dataclass(frozen=True)
class ReaderLimits:
    """What the process that reads the repository may take: memory in all, and for one question CPU and wall seconds."""

    memory_bytes: int = 768 * _MIB
    cpu_s: float = 120.0
    wall_s: float = 600.0
    answer_bytes: int = 128 * _MIB


def confine(limits: ReaderLimits, mirror: MirrorLimits) -> None:
    """Bound this process for good: memory, the size of a file it writes, open files, no core dumps."""
    largest_file = mirror.max_bytes + mirror.max_object_bytes
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, largest_file),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def start_watch(limits: ReaderLimits) -> None:
    """Bound the next question: the kernel ends the process, also within C code, when its time is up."""
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)


def stop_watch() -> None:
    """The question has been answered."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def why_ended(returncode: int, limits: ReaderLimits) -> str:
    """The bound that a process which ended on its own ran into, in words; empty where it was none of them."""
    return {
        -signal.SIGPROF: f"more than {limits.cpu_s:g} s of CPU time",
        -signal.SIGALRM: f"longer than {limits.wall_s:g} s",
        -signal.SIGKILL: f"more than {limits.memory_bytes // _MIB} MB of memory, or was killed",
        -signal.SIGABRT: f"more than {limits.memory_bytes // _MIB} MB of memory",
        -signal.SIGSEGV: f"more than {limits.memory_bytes // _MIB} MB of memory, or more than libgit2 could bear",
    }.get(returncode, "")
