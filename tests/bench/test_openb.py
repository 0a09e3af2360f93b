"""The benchmark on the Alibaba trace: its protocol on small lists, its output, and one run of the real thing."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import production
from bench.openb import POLICIES, main, synthetic, with_cpu_pods
from bench.packing import NoTrace, Trace, arrivals, read, replicas_for, rounded
from bench.published import BestFit, Fgd, RepeatedFit, typical
from bench.reference.fragmentation import Measure, Request
from bench.reference.packer import FreeNode, models, states_of
from tests.support.shared import shared_path

ROOT = Path(__file__).resolve().parents[2]
CLOSING = re.compile(r"^small allocated (\d+\.\d\d) fragmented (\d+\.\d\d) seconds \d+\.\d$")
_NODE_HEAD = "sn,cpu_milli,memory_mib,gpu,model\n"
_POD_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
HALF, ONE, TWO = Request(1000, 10, 1, 500), Request(2000, 10, 1), Request(2000, 10, 2)


@pytest.fixture
def pod_list(tmp_path: Path) -> Path:
    """Sixteen GPUs on four nodes, and 24 pods of all kinds."""
    nodes = ("b,32000,1000,8,T4", "a,16000,1000,4,T4", "d,8000,1000,2,G2", "c,8000,1000,2,G2")
    kinds = (
        "2000,10,1,470,",
        "3000,20,1,1000,",
        "4000,20,2,1000,T4",
        "2000,10,0,0,",
        "1000,10,1,230,G2|T4",
        "1,1,1,810,",
    )
    pods = (f"pod-{n:02},{kinds[n % len(kinds)]},LS" for n in range(24))
    (tmp_path / "some_node_list.csv").write_text(_NODE_HEAD + "\n".join(nodes), encoding="utf-8")
    path = tmp_path / "openb_pod_list_small.csv"
    path.write_text(_POD_HEAD + "\n".join(pods), encoding="utf-8")
    return path


# -- the protocol -----------------------------------------------------------------------------------------------------


def test_read(pod_list: Path) -> None:
    trace = read(pod_list)
    assert trace.name == "small"
    assert trace.gpu_milli == 16_000
    assert [node.name for node in trace.nodes] == ["a", "b", "c", "d"]
    assert trace.nodes[2] == FreeNode("c", 8000, 1000, (1000, 1000), "G2")
    assert trace.pods[2:5] == (
        Request(4000, 20, 2, 1000, ("T4",)),
        Request(2000, 10),
        Request(1000, 10, 1, 230, ("G2", "T4")),
    )
    assert trace.mix[Request(2000, 10)] == 4


def trace_of(gpus: int, *pods: Request) -> Trace:
    return Trace("made", (FreeNode("n", 0, 0, (1000,) * gpus),), pods)


@pytest.mark.parametrize("listed", [4, 26, 100], ids=["filled up", "as it is", "cut"])
@pytest.mark.parametrize("seed", [42, 43])
def test_arrivals_ask_for_130_percent(listed: int, seed: int) -> None:
    pods = arrivals(trace_of(20, *[ONE] * listed, Request(1, 1)), seed)
    assert sum(pod.total_gpu_milli for pod in pods) == 26_000


def test_arrivals_are_the_list_in_another_order_first() -> None:
    listed = (ONE, HALF, TWO, Request(1, 1)) * 5
    trace = trace_of(100, *listed)
    first, again, other = (arrivals(trace, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert tuple(first[:20]) != listed
    assert Counter(first[:20]) == Counter(listed)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"pods.csv": _POD_HEAD}, "0 node lists"),
        ({"pods.csv": _POD_HEAD, "a_node_list.csv": _NODE_HEAD, "b_node_list.csv": _NODE_HEAD}, "2 node lists"),
        ({"pods.csv": _POD_HEAD, "a_node_list.csv": _NODE_HEAD}, "no GPUs"),
        ({"pods.csv": _POD_HEAD + "p,1,1,1,1000,,", "a_node_list.csv": _NODE_HEAD + "n,1,1,many,T4"}, "ValueError"),
        ({"pods.csv": "name\np", "a_node_list.csv": _NODE_HEAD + "n,1,1,1,T4"}, "KeyError"),
        ({"pods.csv": _POD_HEAD + "p,1,1,2,500,,", "a_node_list.csv": _NODE_HEAD + "n,1,1,1,T4"}, "shared"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, files: Mapping[str, str], why: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(NoTrace, match=why):
        read(tmp_path / "pods.csv")


# -- the policies to compare with -------------------------------------------------------------------------------------


def test_typical_requests_are_the_popular_ones_whatever_their_memory() -> None:
    mix = {ONE: 50, Request(2000, 99, 1): 10, HALF: 36, TWO: 4}
    assert typical(mix) == [(Request(2000, 0, 1), 60 / 96), (Request(1000, 0, 1, 500), 36 / 96)]


@pytest.mark.parametrize(
    ("kind", "mix", "machine", "worth"),
    [
        (Fgd, {HALF: 1}, FreeNode("n", 9000, 0, (400, 700), "T4"), -400_000),
        (Fgd, {HALF: 1}, FreeNode("n", 999, 0, (400, 700), "T4"), -1_100_000),
        (Fgd, {TWO: 1}, FreeNode("n", 9000, 0, (1000, 700), "T4"), -1_700_000),
        (Fgd, {TWO: 1}, FreeNode("n", 9000, 0, (1000, 1000, 700), "T4"), -700_000),
        (Fgd, {HALF: 1, Request(1, 1): 1}, FreeNode("n", 9000, 0, (400, 700), "T4"), -750_000),
        (Fgd, {Request(0, 0, 1, models=("G2",)): 1}, FreeNode("n", 9000, 0, (1000,), "T4"), -1_000_000),
        (RepeatedFit, {HALF: 1}, FreeNode("n", 9000, 0, (400, 700), "T4"), -600_000),
        (RepeatedFit, {HALF: 1}, FreeNode("n", 1999, 0, (1000, 1000), "T4"), -1_500_000),
        (RepeatedFit, {TWO: 1}, FreeNode("n", 9000, 0, (1000, 1000, 1000), "T4"), -1_000_000),
        (RepeatedFit, {HALF: 1, Request(1, 1): 9}, FreeNode("n", 9000, 0, (400, 700), "T4"), -600_000),
        (RepeatedFit, {Request(0, 0, 1, models=("G2",)): 1}, FreeNode("n", 9000, 0, (1000,), "T4"), -1_000_000),
        (BestFit, {}, FreeNode("n", 64_000, 0, (1000, 1000), "T4"), 250_000 + 125_000),
    ],
)
def test_worth(kind: type[Fgd | RepeatedFit | BestFit], mix: dict[Request, int], machine: FreeNode, worth: int) -> None:
    measure: Measure = kind(mix, ("T4",))
    assert measure.worth(states_of([machine], measure)).tolist() == [worth]


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_the_closing_line(pod_list: Path, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(pod_list), "--seeds", "2", "--workers", "1", "--policy", policy]) == 0
    *runs, closing = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in runs] == ["small seed 42", "small seed 43"]
    match = CLOSING.match(closing)
    assert match
    assert 50 < float(match[1]) <= 100
    assert 0 <= float(match[2]) <= 100


@pytest.mark.parametrize("policy", production.RULES)
def test_what_the_deciders_use_places_whole_gpus(
    pod_list: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(pod_list), "--seeds", "2", "--workers", "1", "--engine", "production", "--policy", policy]
    assert main(arguments) == 0
    *runs, closing = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in runs] == ["small-whole seed 42", "small-whole seed 43"]
    match = CLOSING.match(closing.replace("-whole", ""))
    assert match
    assert 50 < float(match[1]) <= 100


def test_only_pods_with_whole_gpus_or_none_are_left(pod_list: Path) -> None:
    left = production.whole(read(pod_list))
    assert {(pod.gpus, pod.gpu_milli) for pod in left.pods} == {(0, 1000), (1, 1000), (2, 1000)}
    assert len(left.pods) == 12


def test_by_worth_more_is_allocated_than_by_the_tightest_room() -> None:
    trace = production.whole(synthetic(60))
    fragmented = Fgd(trace.mix, models(trace.nodes))
    by = {name: production.fill(trace, rule, fragmented, 42).allocated_pct for name, rule in production.RULES.items()}
    assert by["expected-fill"] > by["tightest"] + 1


def test_one_closing_line_for_each_list_at_the_end(pod_list: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(pod_list), str(pod_list), "--seeds", "1", "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [bool(CLOSING.match(line)) for line in lines] == [False, False, True, True]


@pytest.mark.parametrize(
    "wrong",
    [
        ["nowhere.csv"],
        ["--seeds", "0"],
        ["--workers", "0"],
        ["--engine", "production", "--policy", "fgd"],
        ["--replicas", "1"],
        ["--replicas", "2,x"],
    ],
)
def test_what_it_refuses(pod_list: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(pod_list), *wrong])
    assert stopped.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def _without_times(text: str) -> str:
    return re.sub(r" seconds .*", "", text)


def test_it_is_the_same_in_every_process(pod_list: Path) -> None:
    """Whatever the hash seed, and whether it runs side by side or not."""
    found = set()
    for seed, workers in (("1", "1"), ("2", "2")):
        done = subprocess.run(
            [sys.executable, "-m", "bench.openb", str(pod_list), "--seeds", "3", "--workers", workers],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert CLOSING.match(done.stdout.splitlines()[-1])
        found.add(_without_times(done.stdout))
    assert len(found) == 1


def test_the_real_trace(capsys: pytest.CaptureFixture[str]) -> None:
    path = shared_path("traces/openb/openb_pod_list_default.csv")
    assert main([str(path), "--seeds", "1"]) == 0
    assert "default allocated 96.02 fragmented 99.59" in _without_times(capsys.readouterr().out).splitlines()[-1]


def test_the_real_trace_through_what_the_deciders_use(capsys: pytest.CaptureFixture[str]) -> None:
    path = shared_path("traces/openb/openb_pod_list_default.csv")
    assert main([str(path), "--seeds", "1", "--engine", "production"]) == 0
    assert "default-whole allocated 99.87" in capsys.readouterr().out.splitlines()[-1]


# -- pods that share a GPU --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milli", "offered", "replicas"),
    [
        (500, (2, 3, 4), 2),
        (333, (2, 3, 4), 3),
        (334, (2, 3, 4), 2),
        (100, (2, 3, 4), 4),
        (501, (2, 3, 4), 1),
        (1000, (2,), 1),
        (300, (), 1),
    ],
)
def test_a_share_takes_the_smallest_replica_that_is_no_less(
    milli: int, offered: tuple[int, ...], replicas: int
) -> None:
    pod = Request(1, 1, 1, milli)
    assert replicas_for(pod, offered) == replicas
    assert rounded(pod, offered).gpu_milli == (1000 // replicas if offered else milli)


@pytest.mark.parametrize(
    ("shares", "offered", "placed", "allocated", "held"),
    [
        pytest.param([460, 500], (2,), 4, (92, 100), 100, id="two a GPU"),
        pytest.param([600], (2,), 2, (60, 60), 100, id="more than half is a whole GPU"),
        pytest.param([200], (2, 4), 8, (80, 80), 100, id="the smaller replica where both would do"),
    ],
)
def test_pods_that_share_a_gpu_take_one_replica(
    shares: list[int], offered: tuple[int, ...], placed: int, allocated: tuple[int, int], held: int
) -> None:
    node = FreeNode("n", 64_000, 65_536, (1000, 1000), "a")
    trace = Trace("t", (node,), tuple(Request(1_000, 1_024, 1, milli) for milli in shares))
    outcome = production.fill(
        trace, production.RULES["expected-fill"], Fgd(trace.mix, models(trace.nodes)), 42, offered
    )
    assert (outcome.placed, outcome.held_pct) == (placed, held)
    assert allocated[0] <= outcome.allocated_pct <= allocated[1]


def test_a_pool_takes_the_machines_with_the_most_cores_a_gpu() -> None:
    """Half of what is asked for is asked for by halves: four of eight GPUs are offered twice."""
    cores = {"few": (32, 4), "many": (52, 2), "some": (24, 2)}
    nodes = tuple(FreeNode(name, 1000 * cpu, 65_536, (1000,) * gpus, "a") for name, (cpu, gpus) in cores.items())
    trace = Trace("t", nodes, (Request(4_000, 1, 1, 500),) * 2 + (Request(4_000, 1, 1),))
    assert production.pooled(trace, (2,)) == {"few": 1, "many": 2, "some": 2}
    assert set(production.pooled(trace, ()).values()) == {1}


def test_fgd_is_printed_beside_with_exact_shares_and_with_the_same_rounding(
    pod_list: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(pod_list), "--seeds", "1", "--workers", "1", "--engine", "production", "--replicas", "2,4"]
    assert main(arguments) == 0
    closing = capsys.readouterr().out.splitlines()[-3:]
    assert [line.partition(" allocated")[0] for line in closing] == [
        "small fgd (exact shares)",
        "small fgd (shares rounded up)",
        "small",
    ]
    assert [" held " in line for line in closing] == [False, True, True]


@pytest.mark.slow
def test_shared_pods_of_the_real_trace_are_packed_at_least_as_well_as_by_fgd_with_the_same_rounding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = shared_path("traces/openb/openb_pod_list_default.csv")
    assert main([str(path), "--seeds", "1", "--engine", "production", "--replicas", "2,3,4,6"]) == 0
    closing = capsys.readouterr().out.splitlines()[-3:]
    exact, alike, ours = (float(line.partition(" allocated ")[2].split()[0]) for line in closing)
    assert (exact, alike, ours) == (94.99, 92.90, 93.25)


def test_pods_without_gpus_are_repeated() -> None:
    trace = synthetic(15)
    plain = sum(not pod.gpus for pod in trace.pods)
    more = with_cpu_pods(trace, 2.5)
    assert (more.name, sum(not pod.gpus for pod in more.pods)) == ("synthetic-cpu250", plain * 5 // 2)
    assert with_cpu_pods(trace, 1) is trace
