"""Cases on a cluster of Dask on this machine: the same outcomes, and what goes wrong is named."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from agent.cli.replay_executors import DaskCluster, LocalProcesses, UnusableExecutor, executor_of
from tests.agent.cli.test_replay import EXAMPLES, FEW

LOOPBACK = "127.0.0.1:0"
GRID = """
market: [{name: as now}, {name: dear, prices: [{factor: 2.0}]}]
team: [{name: as declared}, {name: without, quotas: [{team: ml, factor: 0.5}]}]
"""


class DiesCase(NamedTuple):
    """A case in which the worker is lost so many times; what was lost is counted in files."""

    name: str
    times: int
    folder: Path


def dies(case: DiesCase) -> str:
    """A worker that is lost in the midst of a case."""
    died = len(list(case.folder.glob(f"{case.name}-*")))
    if died < case.times:
        (case.folder / f"{case.name}-{died}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return case.name


def fails(case: str) -> str:
    """Something wrong with a case."""
    raise UnusableExecutor(case)


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as cluster:
        yield cluster


def at(cluster: Any) -> DaskCluster:
    found = executor_of(cluster.scheduler_address.replace("tcp://", "dask://"), 0)
    assert isinstance(found, DaskCluster)
    return found


@pytest.mark.slow
def test_scenarios_come_out_as_in_local_processes(dask: Any, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text(FEW, "utf-8")
    (tmp_path / "grid.yaml").write_text(GRID, "utf-8")
    common = ["replay", "--trace", tmp_path / "few.csv", "--to", EXAMPLES / "minimal", "-o", "json"]
    common += ["--scenarios", tmp_path / "grid.yaml"]
    here = CliRunner().invoke(app, [*map(str, common), "--jobs", "1"])
    there = CliRunner().invoke(app, [*map(str, common), "--executor", str(at(dask))])
    assert there.exit_code == exits.OK, there.output
    assert there.stdout == here.stdout
    assert there.stdout.count('"name": "') == 4


@pytest.mark.slow
def test_what_a_lost_worker_played_is_played_by_another(dask: Any, tmp_path: Path) -> None:
    cases = [DiesCase("a", 0, tmp_path), DiesCase("b", 1, tmp_path), DiesCase("c", 0, tmp_path)]
    assert at(dask).play(cases, dies) == ["a", "b", "c"]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_a_case_that_loses_every_worker_is_named(dask: Any, tmp_path: Path) -> None:
    with pytest.raises(UnusableExecutor, match=r"heavy has lost every worker that played it, tcp://127.*memory-limit"):
        at(dask).play([DiesCase("light", 0, tmp_path), DiesCase("heavy", 99, tmp_path)], dies)


@pytest.mark.slow
def test_what_is_wrong_with_a_case_is_told_as_here(dask: Any) -> None:
    for executor in (at(dask), LocalProcesses(1)):
        with pytest.raises(UnusableExecutor, match=r"^one$"):
            executor.play(["one", "two"], fails)


@pytest.mark.slow
def test_a_cluster_without_workers_is_not_waited_for_for_ever() -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=LOOPBACK, silence_logs=50) as cluster:
        executor = replace(at(cluster), workerless_s=0.5)
        with pytest.raises(UnusableExecutor, match=r"dask://127.*has had no worker for 0.5 s; start some"):
            executor.play(["one"], fails)


def waits(begun: Path) -> None:
    """A case that goes on until the worker is ended."""
    begun.touch()
    time.sleep(600.0)


@pytest.mark.slow
def test_a_scheduler_that_is_lost_in_the_midst_is_named(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        where, begun = f"127.0.0.1:{probe.getsockname()[1]}", tmp_path / "begun"
    host, _, port = where.partition(":")
    scheduler = begin("scheduler", "--host", host, "--port", port)
    worker = begin("worker", f"tcp://{where}", "--host", host, "--nthreads", "1", "--no-nanny")

    def killed() -> None:
        until_s = time.monotonic() + 60.0
        while not begun.exists() and time.monotonic() < until_s:
            time.sleep(0.01)
        scheduler.kill()

    killer = threading.Thread(target=killed)
    killer.start()
    try:
        with pytest.raises(UnusableExecutor, match=rf"dask://{where}: its scheduler was lost"):
            DaskCluster(where, connect_s=60.0).play([begun], waits)
    finally:
        killer.join()
        for process in (scheduler, worker):
            process.kill()
            process.wait()


def begin(what: str, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments, "--no-dashboard"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text(FEW, "utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            UnusableExecutor, match=rf"no scheduler of Dask answers at dask://{where} within 1 s.*start one"
        ):
            DaskCluster(where, connect_s=1.0).play(["one"], fails)


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("ray://head:10001", "Ray is not supported; dask://HOST:PORT is"),
        ("dask://head", "no such executor; dask://HOST:PORT is one"),
        ("dask://head:8786/path", "no such executor"),
        ("dask://user@head:8786", "no such executor"),
    ],
)
def test_an_executor_that_there_is_not_is_refused(executor: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text(FEW, "utf-8")
    arguments = ["replay", "--trace", tmp_path / "few.csv", "--to", EXAMPLES / "minimal", "--executor", executor]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == exits.ERROR
    assert words in done.stderr


def test_jobs_are_of_this_machine() -> None:
    with pytest.raises(UnusableExecutor, match="--jobs is of this machine"):
        executor_of("dask://[::1]:8786", 4)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnusableExecutor, match=r"pip install 'muster\[dask\]'"):
        DaskCluster("127.0.0.1:8786").play(["one"], fails)
