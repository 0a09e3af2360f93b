"""What would be enough for what pods were seen to use, what that saves, and who holds a GPU and does nothing."""

from dataclasses import replace

import pytest

from agent.clouds import cloud_provider
from fleet.cost.sizing import FEW_READINGS, gpu_prices, size_advice, use_report, uses
from fleet.snapshot.gpus import GpuReading, MeasuredUse

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
