"""Readings of dcgm-exporter, kept while the process leads: its pods are asked in turn, beside the brain.

Bounded in time (a time-out each, a share of the process), in size (`providers.dcgm`) and in number; one that does not
answer is told of and stops nothing. What is kept is forgotten with the process: it says since when it looks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import structlog

from agent.config import DcgmSettings
from agent.inbox import Event, GpusRead
from fleet.reasons import some_of
from fleet.snapshot.gpus import GpuRecord, GpuScrape
from model.plain_text import counted
from providers.clock import Clock
from providers.dcgm import DcgmError, scrape
from providers.kube.errors import KubeError
from providers.kube.exporters import GpuExporter, find_exporters
from providers.kube.transport import KubeTransport

log = structlog.get_logger(__name__)

AT_ONCE: Final = 8
SHARE: Final = 0.1
"""The part of one processor that reading may take: where it takes more, it is done less often."""
FOUND_AGAIN_S: Final = 60.0
"""How often the exporters' pods are listed, at least; with short pauses after each few readings."""
_READINGS_OF_A_LIST: Final = 4


def readings_listener(
    said: DcgmSettings,
    transport: KubeTransport,
    put: Callable[[Event], None],
    clock: Clock,
    count: Callable[[str, str], None],
) -> Callable[[], float]:
    """Asks all exporters once a call, and hands on what they have said so far; `count` hears of those that fail."""
    record, asked = GpuRecord(said.window_hours * 3600.0), ThreadPoolExecutor(AT_ONCE, thread_name_prefix="dcgm")
    found: Sequence[GpuExporter] = ()
    again_s = min(FOUND_AGAIN_S, _READINGS_OF_A_LIST * said.interval_s)
    found_at_s = -again_s

    def listen() -> float:
        """Read every exporter once; seconds until the next time, so many that reading stays within `SHARE`."""
        nonlocal found, found_at_s
        trouble = ""
        if clock.monotonic() - found_at_s >= again_s or not found:
            try:
                found = find_exporters(transport, said.namespace, said.pod_selector, said.port)
                found_at_s = clock.monotonic()
            except KubeError as error:
                log.warning("exporters_not_listed", why=str(error))
                trouble = f"the pods of dcgm-exporter in {said.namespace} cannot be listed: {error}"
        asked_at_s = clock.now()
        told = list(asked.map(lambda it: _asked(it, said.timeout_s), found))
        answers = {it: answer for it, (answer, _) in zip(found, told, strict=True)}
        scrapes = {it.node: answer for it, answer in answers.items() if isinstance(answer, GpuScrape)}
        failed = {it.node: str(answer) for it, answer in answers.items() if isinstance(answer, DcgmError)}
        for _ in failed:
            count("dcgm", "scrape")
        record.take(scrapes, asked_at_s)
        put(GpusRead(record.uses, record.faults, trouble or _trouble(failed, len(found)), record.holders))
        return max(said.interval_s, sum(took_s for _, took_s in told) / SHARE)

    return listen


def _asked(exporter: GpuExporter, timeout_s: float) -> tuple[GpuScrape | DcgmError, float]:
    """What an exporter says of its node, whatever it calls that; and the CPU seconds that it took."""
    began_s = time.thread_time()
    try:
        told = scrape(exporter.url, timeout_s)
    except DcgmError as error:
        return error, time.thread_time() - began_s
    readings = tuple(replace(it, node=exporter.node) for it in told.readings)
    return GpuScrape(readings, told.complaints), time.thread_time() - began_s


def _trouble(failed: Mapping[str, str], all_of_them: int) -> str:
    if not failed:
        return ""
    names = sorted(failed)
    who = f"{len(failed)} of {counted(all_of_them, 'exporter')} of readings give none, on {some_of(names)}"
    return f"{who}: {failed[names[0]]}"
