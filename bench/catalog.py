"""The us-east-1 catalogue from nothing: read the package data, compute 1,364 types, make 12,500 offers.

Goal: loading the package data under 60 ms. Each figure is the median of runs in fresh caches.
"""

import statistics
import time
from collections.abc import Callable

from providers.aws import facts
from providers.aws.catalog import package_catalog

_RUNS = 9


def run() -> dict[str, float]:
    """Milliseconds to read the package data, and to build the catalogue from nothing."""
    return {
        "aws_facts_load_ms": _median_ms(facts.package_types),
        "aws_catalog_cold_ms": _median_ms(lambda: package_catalog("us-east-1")),
        "aws_catalog_offers": float(len(package_catalog("us-east-1").catalog.offers)),
    }


def _median_ms(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(_RUNS):
        facts.package.cache_clear()
        facts.package_types.cache_clear()
        started = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - started))
    return round(statistics.median(taken), 1)
