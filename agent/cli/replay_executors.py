"""Where the cases of a replay are played: in processes of this machine, or on an existing cluster of Dask.

A case says all that it needs and its outcome depends on nothing else, so that it is the same wherever it is played,
and may be played again where a worker was lost.
"""

import logging
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import get_context
from typing import Any, Final, TypeVar

_Case = TypeVar("_Case")
_Outcome = TypeVar("_Outcome")

CONNECT_S: Final = 10.0
"""How long a scheduler may take to answer."""
WORKERLESS_S: Final = 60.0
"""How long a cluster may be without any worker: one that restarts them takes seconds."""
_LOOK_S: Final = 1.0
_DASK: Final = re.compile(r"dask://(?P<where>(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5})")


class UnusableExecutor(Exception):
    """Cases cannot be played there; the message names where, and what to do about it."""


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """So many processes of this machine; 0 = as many as there are processors."""

    jobs: int

    def play(self, cases: Sequence[_Case], play: Callable[[_Case], _Outcome]) -> list[_Outcome]:
        """Returns the outcomes of the cases, in their order. Errors: those of `play`."""
        jobs = min(len(cases), self.jobs or os.cpu_count() or 1)
        if jobs <= 1:
            return [play(case) for case in cases]
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as processes:
            return list(processes.map(play, cases))


@dataclass(frozen=True, slots=True)
class DaskCluster:
    """The workers of a scheduler at `HOST:PORT`."""

    where: str
    connect_s: float = CONNECT_S
    workerless_s: float = WORKERLESS_S

    def play(self, cases: Sequence[_Case], play: Callable[[_Case], _Outcome]) -> list[_Outcome]:
        """Returns the outcomes of the cases, in their order. Errors: those of `play`, UnusableExecutor.

        What a lost worker was playing is played by another one; a case that has lost several of them is named.
        """
        try:
            import distributed
        except ImportError as error:
            raise UnusableExecutor(f"--executor {self} needs Dask here: pip install 'muster[dask]'") from error
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # stacks of what is told in a sentence below
        try:
            client = distributed.Client(f"tcp://{self.where}", timeout=self.connect_s, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise UnusableExecutor(
                f"no scheduler of Dask answers at {self} within {self.connect_s:g} s ({type(error).__name__}); "
                "start one (`dask scheduler`) and workers (`dask worker`), or leave out --executor"
            ) from error
        with client, client.as_current():
            return self._played(client, cases, play)

    def __str__(self) -> str:
        return f"dask://{self.where}"

    def _played(self, client: Any, cases: Sequence[_Case], play: Callable[[_Case], _Outcome]) -> list[_Outcome]:
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        try:
            self._await_workers(client)
            self._compare_versions(client)
            futures = client.map(play, list(cases), pure=False)
            self._await(client, futures)
            return [it.result() for it in futures]  # in their order: of several errors always the same
        except KilledWorker as error:
            name = getattr(cases[_lost(futures, error)], "name", "") or "a case"
            raise UnusableExecutor(
                f"{self}: {name} has lost every worker that played it, {error.last_worker.address} last; it may "
                "take more memory than they have (`dask worker --memory-limit`)"
            ) from error
        except ModuleNotFoundError as error:
            raise UnusableExecutor(f"{self}: its workers lack {error.name}; install {_ours()} there") from error
        except (CommClosedError, CancelledError, OSError) as error:
            raise UnusableExecutor(f"{self}: its scheduler was lost ({type(error).__name__})") from error

    def _await_workers(self, client: Any) -> None:
        try:
            client.wait_for_workers(1, timeout=self.workerless_s)
        except TimeoutError as error:
            raise self._workerless() from error

    def _workerless(self) -> UnusableExecutor:
        return UnusableExecutor(
            f"{self} has had no worker for {self.workerless_s:g} s; "
            f"start some (`dask worker tcp://{self.where} --nthreads 1`)"
        )

    def _compare_versions(self, client: Any) -> None:
        """The same code on the same Python, or outcomes would not be comparable, and cases could not be read."""
        ours, told = _ours(), client.run(_ours, on_error="return")
        if lacking := [it for it in told.values() if isinstance(it, ModuleNotFoundError)]:
            raise lacking[0]
        # A worker that was lost just then says nothing; what takes its place has the same code.
        others = {worker: found for worker, found in told.items() if isinstance(found, str) and found != ours}
        if others:
            told = ", ".join(f"{worker} has {found}" for worker, found in sorted(others.items())[:3])
            raise UnusableExecutor(f"{self}: {told}, and {ours} is needed, as here")

    def _await(self, client: Any, futures: Sequence[Any]) -> None:
        """Waits until all are done; Dask itself would wait for ever for a worker to come."""
        import distributed

        seen_s = time.monotonic()
        while True:
            try:
                distributed.wait(futures, timeout=_LOOK_S)
            except TimeoutError:
                if client.status != "running":
                    raise UnusableExecutor(f"{self}: its scheduler was lost") from None
                if client.scheduler_info()["workers"]:
                    seen_s = time.monotonic()
                elif time.monotonic() - seen_s > self.workerless_s:
                    raise self._workerless() from None
            else:
                return


def _lost(futures: Sequence[Any], error: Any) -> int:
    """Returns which of the futures it is that has lost its workers."""
    return next(number for number, it in enumerate(futures) if it.key == error.task)


def _ours() -> str:
    major, minor, _ = platform.python_version_tuple()
    return f"muster {metadata.version('muster')} on Python {major}.{minor}"


def executor_of(text: str, jobs: int) -> LocalProcesses | DaskCluster:
    """Returns what an address names; nothing = this machine. Errors: UnusableExecutor."""
    if not text:
        return LocalProcesses(jobs)
    if jobs:
        raise UnusableExecutor(f"--jobs is of this machine; how many {text} plays at once is up to its workers")
    if text.startswith("ray:"):
        raise UnusableExecutor(f"--executor {text}: Ray is not supported; dask://HOST:PORT is, or leave out --executor")
    if (found := _DASK.fullmatch(text)) is None:
        raise UnusableExecutor(f"--executor {text}: no such executor; dask://HOST:PORT is one")
    return DaskCluster(found["where"])
