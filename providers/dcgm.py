"""NVIDIA's dcgm-exporter: its Prometheus text as readings of GPUs and slices. It is asked once, within bounds."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Final

from fleet.snapshot.gpus import ComplaintKind, GpuComplaint, GpuReading, GpuScrape
from model.plain_text import plain

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of an answer: sixteen GPUs in seven slices each, with all fields of DCGM, take a twentieth."""
MOST_LINES: Final = 50_000
MOST_SIGNS: Final = 253
"""Of the value of a label; those that are longer are nobody's names."""
MOST_COMPLAINTS: Final = 64
_MOST_WORDS: Final = 120
TIMEOUT_S: Final = 10.0

_ACTIVE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""0 to 1, also of slices, and on by default. `DCGM_FI_DEV_GPU_UTIL` (0 to 100) says nothing of slices."""
_UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
_USED: Final = "DCGM_FI_DEV_FB_USED"
_FREE: Final = "DCGM_FI_DEV_FB_FREE"
_FIELDS: Final = frozenset((_ACTIVE, _UTIL, _USED, _FREE))
_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
_HEALTH: Final = "DCGM_EXP_GPU_HEALTH_STATUS"
_COMPLAINTS: Final = {
    _XID: (ComplaintKind.XID, 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (ComplaintKind.ROW_REMAP_FAILURE, 1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": (ComplaintKind.ROW_REMAP_PENDING, 1),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (ComplaintKind.UNCORRECTABLE_ECC, 1),
    _HEALTH: (ComplaintKind.HEALTH, 20),
}
"""Field -> what it complains of, and from which value on. The first two are on by default in dcgm-exporter; health is a
result of DCGM (0 passes, 10 warns, 20 fails)."""
_READ: Final = _FIELDS | _COMPLAINTS.keys()
_WORDS: Final = {_XID: ("err_msg",), _HEALTH: ("health_watch", "health_error_code")}
"""Field -> labels that say more of it."""
_BLANK: Final = 1e14
"""DCGM has values for "no value" (140737488355328, 9223372036854775794); an exporter lets some through."""


class DcgmError(Exception):
    """An exporter does not answer, or not with what can be read; the message says which."""


def scrape(url: str, timeout_s: float = TIMEOUT_S) -> GpuScrape:
    """Asks an exporter (`http://node:9400/metrics`) once. Raises `DcgmError`."""
    import urllib3

    if not url.startswith(("http://", "https://")):
        raise DcgmError(f"{url} is no address of an exporter: http://HOST:9400/metrics")
    try:
        with urllib3.PoolManager() as pool:
            answer = pool.request("GET", url, timeout=timeout_s, retries=False, redirect=False, preload_content=False)
            try:
                content = answer.read(MOST_BYTES + 1)
            finally:
                answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise DcgmError(f"{url} does not answer: {error}") from error
    if answer.status != 200:
        raise DcgmError(f"{url} answers with status {answer.status}")
    return read_scrape(content, url)


def read_scrape(content: bytes, named: str) -> GpuScrape:
    """Returns what a scrape says, readings by GPU and instance; `named` is where it came from. Raises `DcgmError`."""
    if len(content) > MOST_BYTES or content.count(b"\n") > MOST_LINES:
        raise DcgmError(f"{named} says more than an exporter of one machine would")
    from prometheus_client.parser import text_string_to_metric_families

    told: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    about: dict[tuple[str, ...], Mapping[str, str]] = {}
    complaints: set[GpuComplaint] = set()
    try:
        for family in text_string_to_metric_families(_of_interest(content.decode())):
            for sample in _known(family.samples):
                if sample.name in _FIELDS:
                    key = _device(sample.labels)
                    about[key] = sample.labels
                    told[key][sample.name] = sample.value
                else:
                    complaints |= {*_complaint(sample)}
    except (ValueError, KeyError, IndexError) as error:
        raise DcgmError(f"{named} is no text of Prometheus: {error}") from error
    readings = tuple(_reading(about[key], values) for key, values in sorted(told.items()))
    return GpuScrape(readings, tuple(sorted(complaints)[:MOST_COMPLAINTS]))


def _of_interest(text: str) -> str:
    """The lines of fields that are read: the parser takes longer for the others than for these."""
    lines = (it for it in text.split("\n") if it.partition("{")[0].partition(" ")[0] in _READ)
    return "\n".join(lines) + "\n"


def _complaint(sample: "Sample") -> Iterator[GpuComplaint]:
    """What a sample has against its GPU. Rows of slices repeat what is said of the whole GPU."""
    kind, least = _COMPLAINTS[sample.name]
    if sample.value >= least:
        told = (sample.labels.get(label, "") for label in _WORDS.get(sample.name, ()))
        words = plain(", ".join(it for it in told if it))[:_MOST_WORDS]
        yield GpuComplaint(_uuid(sample.labels), kind, int(sample.value), words)


def _known(samples: "list[Sample]") -> Iterator["Sample"]:
    for it in samples:
        short = all(len(value) <= MOST_SIGNS for value in it.labels.values())
        if it.name in _READ and short and isfinite(it.value) and 0 <= it.value < _BLANK:
            yield it


def _device(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A device in the hands of a pod: under time-slicing one GPU has a row for each."""
    return (_uuid(labels), labels.get("GPU_I_ID", ""), *_pod(labels))


def _uuid(labels: Mapping[str, str]) -> str:
    return labels.get("UUID") or labels.get("uuid", "")


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
        _uuid(labels),
        labels.get("GPU_I_ID", ""),
        profile,
        labels.get("modelName", ""),
        namespace,
        pod,
        None if active is None else min(1.0, active),
        values.get(_USED),
        values.get(_FREE),
        int(index) if (index := labels.get("gpu", "")).isdecimal() and len(index) <= 2 else -1,
    )
