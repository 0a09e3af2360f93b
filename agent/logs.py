"""Structured logs: JSON lines for machines, aligned text for people; revision, gang and claim are bound as fields."""

import io
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, MutableMapping
from typing import Any, TextIO

import structlog

from model.addresses import without_secrets
from model.plain_text import plain, plain_block

BURST = 5
"""Equal records of a library are logged this often..."""
WINDOW_S = 60.0
"""... within this time; the first of the next window says how many were left out."""
_KINDS_MOST = 256
_TRACEBACK_MOST = 8192


class LogSampler:
    """Decides which of many equal log lines are written. Not thread-safe by itself; a line too many does no harm."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, burst: int = BURST) -> None:
        self._now_s = now_s
        self._burst = burst
        self._seen: OrderedDict[Hashable, list[float]] = OrderedDict()
        """Kind of line -> when its window began, lines in it, lines left out."""

    def admit(self, kind: Hashable) -> int | None:
        """Returns how many lines of the kind were left out since the last one; None if this one is left out too."""
        now_s = self._now_s()
        window = self._seen.pop(kind, None)
        if window is None or now_s - window[0] >= WINDOW_S:
            left_out = int(window[2]) if window else 0
            self._seen[kind] = [now_s, 1.0, 0.0]
            if len(self._seen) > _KINDS_MOST:
                self._seen.popitem(last=False)
            return left_out
        self._seen[kind] = window
        window[1] += 1
        if window[1] <= self._burst:
            return 0
        window[2] += 1
        return None


class LibraryRecords(logging.Handler):
    """Takes what libraries log (aiohttp, urllib3, apscheduler) and writes samples of it as structured lines."""

    def __init__(self, sampler: LogSampler | None = None) -> None:
        super().__init__()
        self._sampler = sampler or LogSampler()
        self._log = structlog.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record, unless too many of its kind came lately. Records are equal by their template."""
        left_out = self._sampler.admit((record.name, record.levelno, record.msg))
        if left_out is None:
            return
        try:
            words = record.getMessage()
        except (TypeError, ValueError):
            words = str(record.msg)
        fields: dict[str, Any] = {"logger": record.name, "said": plain(words)[:1024]}
        if left_out:
            fields["left_out"] = left_out
        if record.exc_info and record.exc_info[1] is not None:
            fields["exc_info"] = record.exc_info
        self._log.log(max(record.levelno, logging.WARNING), "library_says", **fields)


def configure_logs(log_format: str = "json", *, level: str = "INFO") -> None:
    """Set structlog up once, for the whole process; everything goes to standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        _without_secrets,
    ]
    structlog.configure(
        processors=[*shared, *(_for_machines() if log_format == "json" else _for_people())],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[LibraryRecords()])


def _for_machines() -> list[structlog.typing.Processor]:
    """JSON writes every sign beyond ASCII, and every control character, as an escape."""
    return [
        structlog.processors.format_exc_info,
        _without_secrets,
        _shorten_traceback,
        structlog.processors.JSONRenderer(),
    ]


def _for_people() -> list[structlog.typing.Processor]:
    return [
        _plain_values,
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_plain_traceback),
    ]


def _without_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """An address may carry a password or a token, whoever logs it."""
    for name, value in event.items():
        if isinstance(value, str) and "://" in value:
            event[name] = without_secrets(value)
    return event


def _shorten_traceback(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if isinstance(event.get("exception"), str):
        event["exception"] = event["exception"][-_TRACEBACK_MOST:]
    return event


def _plain_values(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What is logged may come from a repository, a forge or a job: it can neither add a line nor colour one."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = plain(value)
    return event


def _plain_traceback(out: TextIO, failure: Any) -> None:
    """Writes the traceback without the local values that other formatters print: a whole snapshot."""
    buffer = io.StringIO()
    structlog.dev.plain_traceback(buffer, failure)
    out.writelines(
        f"\n    {line}"
        for line in plain_block(without_secrets(buffer.getvalue()).strip("\n")[-_TRACEBACK_MOST:]).split("\n")
    )
