"""What work asks for at once, which layouts that wants, and whether a change is for the better."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.clouds import cloud_provider
from fleet.advice.layouts import NothingToCut, SlicesAsked, advised, as_declared, asked_by, asked_of, cut_kinds
from fleet.advice.layouts_text import JudgedLayouts, advice_lines, improves, longer
from fleet.optimize.cutting import SliceDemand, Uncuttable
from fleet.replay.outcome import QueueOutcome, ReplayOutcome, ReplaySeries
from fleet.replay.submissions import PodShape, SubmittedGang
from model.loader import load
from tests.support.purchases import HIGHS

pytestmark = HIGHS
REFERENCE = Path(__file__).resolve().parents[3] / "examples" / "reference"
FLEET = load({str(it): it.read_bytes() for it in REFERENCE.rglob("*.yaml")})
CATALOG = cloud_provider().catalog("us-east-1")
SMALL, BIG = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
H100 = {"karpenter.k8s.aws/instance-gpu-name": "h100"}


def gang(name: str, at_s: float, run_s: float, resource: str, pods: int = 1, **selector: str) -> SubmittedGang:
    shape = PodShape(pods, {resource: 1}, selector)
    return SubmittedGang(name, "research", "research-mig", at_s, run_s, (shape,))


def asked(
    work: list[SubmittedGang], until_s: float = 1000.0, cover: float = 1.0, pool: str = "a100-mig"
) -> SlicesAsked:
    return asked_by(FLEET, cut_kinds(FLEET, CATALOG, pool), work, until_s, cover)


@pytest.mark.parametrize(
    ("cover", "expected"),
    [
        pytest.param(1.0, 5, id="the peak"),
        pytest.param(0.95, 3, id="but for a twentieth of the time"),
        pytest.param(0.3, 2, id="never less than the largest gang"),
    ],
)
def test_what_runs_at_once_for_so_much_of_the_time(cover: float, expected: int) -> None:
    work = [gang("a", 0, 1000, SMALL), gang("b", 300, 2000, SMALL, 2), gang("c", 500, 40, SMALL, 2)]
    (found,) = asked(work, cover=cover).demands
    assert found == SliceDemand(SMALL, expected, frozenset({"a100-mig/p4de.24xlarge"}))


def test_whole_gpus_and_what_may_go_nowhere_are_told_of() -> None:
    work = [
        gang("whole", 0, 10, "nvidia.com/gpu"),
        gang("elsewhere", 0, 10, SMALL, **H100),
        gang("other", 0, 10, "nvidia.com/mig-1g.5gb"),
        gang("here", 0, 10, SMALL),
    ]
    found = asked(work)
    assert (found.whole, found.unserved, [it.count for it in found.demands]) == (1, 2, [1])


def test_a_queue_may_use_the_pools_of_its_flavors_only() -> None:
    (found,) = asked([gang("a", 0, 10, SMALL)], pool="").demands
    assert found.machines == {"a100-mig/p4de.24xlarge", "h100-mig/p5.48xlarge"}
    prod = replace(gang("a", 0, 10, SMALL), namespace="prod", queue="prod")
    (found,) = asked([prod], pool="").demands
    assert found.machines == {"h100-mig/p5.48xlarge"}


def test_a_layout_that_is_declared_keeps_its_name_and_a_new_one_is_named_after_what_it_says() -> None:
    kinds = cut_kinds(FLEET, CATALOG, "a100-mig")
    (cut,) = advised(FLEET, kinds, asked_of(kinds, {"3g.40gb": 16})).cuts
    assert (cut.layout.name, cut.new, cut.count, cut.gpus) == ("all-3g.40gb", False, 1, 8)
    mixed = asked_of(kinds, {"3g.40gb": 8, "1g.10gb": 32})
    (cut,) = advised(FLEET, kinds, mixed).cuts
    assert (cut.new, cut.count) == (True, 1)
    assert cut.layout.spec.models["a100-80gb"][0].profiles == {"3g.40gb": 1, "1g.10gb": 4}
    assert cut.layout == advised(FLEET, kinds, mixed).cuts[0].layout
    assert as_declared(FLEET, kinds, mixed).machines == {
        "a100-mig/p4de.24xlarge/all-1g.10gb": 1,
        "a100-mig/p4de.24xlarge/all-3g.40gb": 1,
    }
    with pytest.raises(Uncuttable):
        as_declared(FLEET, kinds, asked_of(kinds, {"2g.20gb": 1}))


def test_the_cheaper_pool_is_advised() -> None:
    kinds = cut_kinds(FLEET, CATALOG)
    found = advised(FLEET, kinds, asked_of(kinds, {"1g.10gb": 112}))
    assert [(it.pool, it.count) for it in found.cuts] == [("a100-mig", 2)]
    assert found.bound_usd_h == pytest.approx(found.usd_h)


@pytest.mark.parametrize("pool", ["h100-full", "nowhere"])
def test_a_pool_that_does_not_cut_is_refused(pool: str) -> None:
    with pytest.raises(NothingToCut, match=pool):
        cut_kinds(FLEET, CATALOG, pool)


def test_nobody_asks_for_slices() -> None:
    kinds = cut_kinds(FLEET, CATALOG)
    with pytest.raises(NothingToCut, match="nobody"):
        advised(FLEET, kinds, asked([gang("a", 0, 10, "nvidia.com/gpu")]))


# -- for the better ---------------------------------------------------------------------------------------------------


def played(usd: float, p95_s: float, finished: int = 10) -> ReplayOutcome:
    total = QueueOutcome("", 10, 10, finished, 0.0, p95_s, 1.0, 0, 0.0)
    series = ReplaySeries((), (), (), {}, {})
    return ReplayOutcome("", 3600.0, (), total, 1, 8, 8, 8.0, usd, 0.0, (), (), series)


CHEAP, DEAR = 10.0, 20.0


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(played(DEAR, 600), played(CHEAP, 600), "", id="cheaper"),
        pytest.param(played(DEAR, 600), played(DEAR, 60), "", id="faster"),
        pytest.param(played(DEAR, 600, 5), played(DEAR, 600), "", id="more ends"),
        pytest.param(played(DEAR, 600), played(CHEAP, 700), "waits would grow", id="cheaper and slower"),
        pytest.param(played(DEAR, 600), played(CHEAP, 650), "", id="slower by less than anybody sees"),
        pytest.param(played(CHEAP, 600), played(DEAR, 600), "it would cost as much", id="dearer"),
        pytest.param(played(DEAR, 600), played(CHEAP, 60, 9), "1 gangs fewer", id="less ends"),
    ],
)
def test_what_is_worth_a_change(before: ReplayOutcome, after: ReplayOutcome, words: str) -> None:
    kinds = cut_kinds(FLEET, CATALOG, "a100-mig")
    demand = asked_of(kinds, {"1g.10gb": 1})
    judged = JudgedLayouts(advised(FLEET, kinds, demand), as_declared(FLEET, kinds, demand), (before, after))
    assert improves(judged).startswith(words)
    assert bool(words) == bool(improves(judged))
    assert any(line.startswith("not worth a change") for line in advice_lines(judged)) == bool(words)
    assert improves(replace(judged, outcomes=None)) == "the layouts that are declared give the same for the same money"


@pytest.mark.parametrize(
    ("before_s", "after_s", "seen"), [(0, 60, False), (0, 61, True), (6000, 6500, False), (6000, 6601, True)]
)
def test_a_minute_and_a_tenth_are_seen(before_s: float, after_s: float, seen: bool) -> None:
    assert longer(before_s, after_s) is seen
