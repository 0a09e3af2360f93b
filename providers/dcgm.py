"""NVIDIA's dcgm-exporter: its Prometheus text as readings of GPUs and slices. It is asked once, within bounds."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Final

from fleet.advice.sizing import GpuReading

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of an answer: sixteen GPUs in seven slices each, with all fields of DCGM, take a twentieth."""
MOST_LINES: Final = 50_000
MOST_SIGNS: Final = 253
"""Of the value of a label; those that are longer are nobody's names."""
TIMEOUT_S: Final = 10.0

_ACTIVE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""0 to 1, also of slices, and on by default. `DCGM_FI_DEV_GPU_UTIL` (0 to 100) says nothing of slices."""
_UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
_USED: Final = "DCGM_FI_DEV_FB_USED"
_FREE: Final = "DCGM_FI_DEV_FB_FREE"
_FIELDS: Final = frozenset((_ACTIVE, _UTIL, _USED, _FREE))
_BLANK: Final = 1e14
"""DCGM has values for "no value" (140737488355328, 9223372036854775794); an exporter lets some through."""


class DcgmError(Exception):
    """An exporter does not answer, or not with what can be read; the message says which."""


def scrape(url: str) -> tuple[GpuReading, ...]:
    """Asks an exporter (`http://node:9400/metrics`) once. Raises `DcgmError`."""
    import urllib3

    if not url.startswith(("http://", "https://")):
        raise DcgmError(f"{url} is no address of an exporter: http://HOST:9400/metrics")
    try:
        with urllib3.PoolManager() as pool:
            answer = pool.request("GET", url, timeout=TIMEOUT_S, retries=False, redirect=False, preload_content=False)
            try:
                content = answer.read(MOST_BYTES + 1)
            finally:
                answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise DcgmError(f"{url} does not answer: {error}") from error
    if answer.status != 200:
        raise DcgmError(f"{url} answers with status {answer.status}")
    return read_scrape(content, url)


def read_scrape(content: bytes, named: str) -> tuple[GpuReading, ...]:
    """Returns the readings of a scrape, by GPU and instance; `named` is where it came from. Raises `DcgmError`."""
    if len(content) > MOST_BYTES or content.count(b"\n") > MOST_LINES:
        raise DcgmError(f"{named} says more than an exporter of one machine would")
    from prometheus_client.parser import text_string_to_metric_families

    told: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    about: dict[tuple[str, ...], Mapping[str, str]] = {}
    try:
        for family in text_string_to_metric_families(content.decode()):
            for sample in _known(family.samples):
                key = _device(sample.labels)
                about[key] = sample.labels
                told[key][sample.name] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise DcgmError(f"{named} is no text of Prometheus: {error}") from error
    return tuple(_reading(about[key], values) for key, values in sorted(told.items()))


def _known(samples: "list[Sample]") -> Iterator["Sample"]:
    for it in samples:
        short = all(len(value) <= MOST_SIGNS for value in it.labels.values())
        if it.name in _FIELDS and short and isfinite(it.value) and 0 <= it.value < _BLANK:
            yield it


def _device(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A device in the hands of a pod: under time-slicing one GPU has a row for each."""
    uuid = labels.get("UUID") or labels.get("uuid", "")
    return (uuid, labels.get("GPU_I_ID", ""), *_pod(labels))


def _pod(labels: Mapping[str, str]) -> tuple[str, str]:
    """Namespace and pod, as one of the exporter's generations or a Prometheus in between names them."""
    for prefix, names in (
        ("", ("namespace", "pod")),
        ("exported_", ("namespace", "pod")),
        ("pod_", ("namespace", "name")),
    ):
        found = [labels.get(prefix + it, "") for it in names]
        if found[1] and not (prefix == "" and labels.get("exported_pod")):
            return found[0], found[1]
    return "", ""


def _reading(labels: Mapping[str, str], values: Mapping[str, float]) -> GpuReading:
    profile, util = labels.get("GPU_I_PROFILE", ""), values.get(_UTIL)
    active = values.get(_ACTIVE, util / 100 if util is not None and not profile else None)
    namespace, pod = _pod(labels)
    return GpuReading(
        labels.get("hostname") or labels.get("Hostname", ""),
        labels.get("UUID") or labels.get("uuid", ""),
        labels.get("GPU_I_ID", ""),
        profile,
        labels.get("modelName", ""),
        namespace,
        pod,
        None if active is None else min(1.0, active),
        values.get(_USED),
        values.get(_FREE),
    )
