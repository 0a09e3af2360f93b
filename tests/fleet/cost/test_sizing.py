"""What would be enough for what pods were seen to use, what that saves, and who holds a GPU and does nothing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.clouds import cloud_provider
from fleet.cost.sizing import (
    FEW_READINGS,
    advice_words,
    gang_use,
    gpu_prices,
    pod_advice,
    size_advice,
    slice_sizes,
    use_report,
    use_words,
    uses,
)
from fleet.explain.gang_notes import gang_notes
from fleet.nodeclaims.gpu_faults import with_gpu_faults
from fleet.reasons import Reason
from fleet.snapshot import Eviction, IdleGpus
from fleet.snapshot.gpus import ComplaintKind, GpuComplaint, GpuFault, GpuReading, MeasuredUse
from model.index import Index
from model.plain_text import instant
from tests.support.fleets import gang, small_fleet
from tests.support.world import World

CATALOG = cloud_provider().catalog("us-east-1")
PRICES = gpu_prices(CATALOG)
A100, H100, L4 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"


def reading(
    model: str = A100, profile: str = "", active: float = 0.5, used_mib: float = 1000, free_mib: float = 0, **of: str
) -> GpuReading:
    found = GpuReading("node", "GPU-1", "7" if profile else "", profile, model, "ml", "a", active, used_mib, free_mib)
    return replace(found, **of)


def seen(found: GpuReading, readings: int = 100) -> MeasuredUse:
    (use,) = uses((60.0 * number, [found]) for number in range(readings))
    return use


def test_active_is_what_is_not_exceeded_in_a_twentieth_of_the_time_and_memory_the_most() -> None:
    scrapes = [(60.0 * at, [reading(active=1.0 if at < 5 else 0.2, used_mib=100 * at)]) for at in range(100)]
    (use,) = uses(scrapes)
    assert (use.active, use.most_mib, use.readings, use.from_s, use.until_s) == (0.2, 9900, 100, 0.0, 5940.0)


def test_each_device_of_a_pod_counts_for_itself_and_what_nobody_holds_for_nothing() -> None:
    told = [reading(), reading(gpu="GPU-2"), reading(pod="", gpu="GPU-3"), replace(reading(gpu="GPU-4"), active=None)]
    assert [it.last.gpu for it in uses([(0.0, told)])] == ["GPU-1", "GPU-2"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(reading(profile="3g.40gb", active=0.4, used_mib=15_000), "a slice 2g.20gb", id="a smaller slice"),
        pytest.param(reading(profile="3g.40gb", active=0.1, used_mib=9_000), "a slice ", id="memory decides"),
        pytest.param(reading(profile="3g.40gb", active=0.1, used_mib=2_000), "a slice 1g.10gb", id="the smallest"),
        pytest.param(reading(profile="3g.40gb", active=0.9, used_mib=2_000), "", id="compute is needed"),
        pytest.param(reading(profile="3g.40gb", active=0.1, used_mib=38_000), "", id="memory is needed"),
        pytest.param(reading(profile="1g.10gb", active=1.0, used_mib=9_000), "", id="the smallest that there is"),
        pytest.param(reading(H100, active=0.3, used_mib=12_000), "a slice 3g.40gb", id="a whole GPU, cut"),
        pytest.param(reading(active=0.95, used_mib=2_000), "", id="a whole GPU, busy"),
        pytest.param(reading(L4, active=0.2, used_mib=3_000, free_mib=19_000), "one of 4 replicas", id="a share"),
        pytest.param(reading(L4, active=0.4, used_mib=3_000, free_mib=19_000), "one of 2 replicas", id="by compute"),
        pytest.param(
            reading(L4, active=0.2, used_mib=12_000, free_mib=10_000),
            "a whole t4",
            id="another GPU for what is no more divided",
        ),
        pytest.param(reading(L4, active=0.3, used_mib=12_000, free_mib=10_000), "", id="but not for what is busy"),
        pytest.param(reading("NVIDIA Unheard", profile="3g.40gb", active=0.0), "", id="a model nobody knows"),
    ],
)
def test_what_would_be_enough(found: GpuReading, words: str) -> None:
    advice = size_advice(seen(found), PRICES)
    if not words:
        assert advice is None
        return
    assert advice is not None
    assert advice.words.startswith(words)
    assert advice.saves_usd > 0


def test_a_saving_is_of_a_month_at_the_price_of_the_gpu() -> None:
    """An eighth of an A100 instead of a half of it: p4de.24xlarge is 27.447 USD an hour for eight."""
    advice = size_advice(seen(reading(profile="3g.40gb", active=0.3, used_mib=2_000)), PRICES)
    assert advice
    assert advice.words == "a slice 2g.20gb"
    assert advice.saves_usd == pytest.approx(27.44705 / 8 * (1 / 2 - 2 / 7) * 730, rel=1e-3)


def test_of_few_readings_nothing_is_concluded() -> None:
    found = reading(profile="3g.40gb", active=0.0, used_mib=100)
    assert size_advice(seen(found, FEW_READINGS - 1), PRICES) is None
    assert size_advice(seen(found, FEW_READINGS), PRICES)


def test_who_is_idle_is_named_the_longest_first() -> None:
    scrapes = [
        (60.0 * at, [reading(active=0.0), reading(pod="b", active=0.9 if at == 40 else 0.001), reading(pod="c")])
        for at in range(100)
    ]
    report = use_report(uses(scrapes), CATALOG, 1800.0)
    assert [(it.last.pod, it.idle_s) for it in report.idle] == [("a", 5940.0), ("b", 3480.0)]
    assert use_report(uses(scrapes), CATALOG, 7200.0).idle == ()


def test_advice_comes_by_what_it_saves() -> None:
    scrapes = [
        (60.0 * at, [reading(profile="2g.20gb", active=0.1), reading(profile="7g.80gb", active=0.1, pod="b")])
        for at in range(20)
    ]
    assert [it.use.last.pod for it in use_report(uses(scrapes), CATALOG, 1e9).advice] == ["b", "a"]


# -- pods with several, and gangs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("active", "used_mib", "words"),
    [
        pytest.param(0.1, 4_000, "1 of 8 GPUs a pod", id="one would do"),
        pytest.param(0.5, 4_000, "5 of 8 GPUs a pod", id="by compute, with a fifth in hand"),
        pytest.param(0.1, 40_000, "5 of 8 GPUs a pod", id="by memory"),
        pytest.param(0.9, 4_000, "", id="all are needed"),
    ],
)
def test_of_several_gpus_fewer_may_be_enough_and_slices_are_not_put_together(
    active: float, used_mib: float, words: str
) -> None:
    found = pod_advice(seen(reading(active=active, used_mib=used_mib, free_mib=81_920 - used_mib)), 8, PRICES)
    assert (found.words if found else "") == words
    if found:
        alone = pod_advice(seen(reading(active=active, used_mib=used_mib)), 1, PRICES)
        assert alone is None or alone.words != found.words


def test_of_few_readings_nothing_is_concluded_for_several_either() -> None:
    few = seen(reading(active=0.0, free_mib=80_000), FEW_READINGS - 1)
    assert pod_advice(few, 8, PRICES) is None


def world(*uses_of: Sequence[MeasuredUse]) -> World:
    """A gang of so many pods with these uses."""
    made = World(small_fleet(), catalog=CATALOG)
    made.machine("m0")
    made.runs(gang("g", count=len(uses_of), gpu=1), ("m0", len(uses_of)))
    made.gpu_uses = {f"ns/g-node-m0-{n}": tuple(it) for n, it in enumerate(uses_of)}
    return made


def test_what_a_gang_makes_of_its_gpus_and_what_would_be_enough() -> None:
    low = seen(reading(active=0.1, used_mib=2_000, free_mib=79_000))
    high = seen(reading(active=0.2, used_mib=6_000, free_mib=75_000, gpu="GPU-2"))
    made = world([low], [high])
    found = gang_use(made.snapshot(), made.gang("g"))
    assert found is not None
    assert (found.devices, found.mean, found.most_mib) == (2, pytest.approx(0.15), 6_000.0)
    assert found.advice == "a slice 2g.20gb", "the busiest of them decides"
    alone = size_advice(replace(high, most_mib=6_000.0), PRICES)
    assert alone is not None
    assert found.saves_usd == pytest.approx(2 * alone.saves_usd)
    words = use_words(found, found.until_s + 10)
    since = f"by readings since {instant(found.from_s)}"
    assert words == f"15 % of 2 x {A100}, memory 5.9 of 79.1 GiB at most of each, {since}"
    assert advice_words(found).startswith("a slice 2g.20gb would be enough: ")
    assert use_words(found, found.until_s + 600) == f"{words}, the last of them at {instant(found.until_s)}"


def test_without_readings_nothing_is_said_of_a_gang() -> None:
    made = world([])
    assert gang_use(made.snapshot(), made.gang("g")) is None
    made = world([seen(reading())], [seen(reading(L4, gpu="GPU-2"))])
    mixed = gang_use(made.snapshot(), made.gang("g"))
    assert mixed is not None
    assert (mixed.advice, advice_words(mixed)) == ("", ""), "GPUs of two kinds"


def test_a_gang_that_makes_little_of_its_gpus_is_told_so_in_its_explanation() -> None:
    made = world([seen(reading(active=0.1, used_mib=2_000, free_mib=79_000))])
    made.gangs["uid-g"] = replace(made.gang("g"), idle=IdleGpus(made.now_s - 4000, 1, 1, 3600.0))
    notes = list(gang_notes(made.snapshot(), made.gang("g")))
    assert [it.partition(":")[0] for it in notes if not it.startswith("ran")] == ["uses", "enough", "idle"]
    assert (
        notes[-1]
        == f"idle: it has done nothing with its GPU or slice for 1h or longer, since {instant(made.now_s - 4000)}"
    )


def test_what_is_told_of_a_gang_is_as_true_an_hour_later() -> None:
    made = world([seen(reading(active=0.1, used_mib=2_000, free_mib=79_000))])
    evicted = Eviction(Reason.RECLAIMED, "makes room", made.now_s - 9000)
    idle = IdleGpus(made.now_s - 4000, 1, 1, 3600.0)
    made.gangs["uid-g"] = replace(made.gang("g"), idle=idle, eviction=evicted, evictions=2, ran_before_s=600.0)
    snapshot, gang = made.snapshot(), made.gang("g")
    notes = list(gang_notes(snapshot, gang))
    assert f"evicted: 2 times; last at {instant(evicted.at_s)}: {Reason.RECLAIMED}" in notes
    assert f"ran: since {instant(gang.admitted_at_s)}, and 10m before" in notes
    later = list(gang_notes(replace(snapshot, now_s=snapshot.now_s + 3600), gang))
    assert later == notes


def test_the_program_s_own_faults_are_told_to_who_has_the_gpu() -> None:
    made = world([seen(replace(reading(active=0.9), node="node-m0"))])
    faults = {
        "node-m0": tuple(
            GpuFault(made.now_s - 30, GpuComplaint(gpu, ComplaintKind.XID, 31)) for gpu in ("GPU-1", "GPU-9")
        )
    }
    made.nodes.update(with_gpu_faults(Index(), dict(made.nodes), faults))
    told = [it for it in gang_notes(made.snapshot(), made.gang("g")) if it.startswith("gpu")]
    found = instant(made.now_s - 30)
    assert told == [f"gpu: GPU-1: XID 31 on node-m0, found at {found}: mostly a fault of the program on it"]


def test_slices_that_would_be_enough_are_counted_beside_those_that_are_held() -> None:
    found = [
        seen(reading(profile="3g.40gb", active=0.1, used_mib=2_000)),
        seen(reading(profile="3g.40gb", active=0.9, used_mib=2_000, pod="b")),
        seen(reading(H100, active=0.3, used_mib=12_000, pod="c")),
        seen(reading(active=0.95, pod="needs-a-whole-one")),
        seen(reading(L4, active=0.1, pod="not-to-be-cut")),
        *(seen(reading(active=0.0, pod="several", gpu=it)) for it in ("GPU-1", "GPU-2")),
    ]
    sizes = slice_sizes(found, PRICES)
    assert sizes.held == {"3g.40gb": 2, "7g.80gb": 1}
    assert sizes.enough == {"1g.10gb": 1, "3g.40gb": 2}
