"""Outcomes of replays for people and programs: a table on a terminal or in a comment, and JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from fleet.replay.outcome import QueueOutcome, ReplayOutcome
from model.kinds.base import format_duration
from model.plain_text import markdown, plain

FORMAT_VERSION: Final = "1.0"
QUEUE_COLUMNS: Final = (
    "queue", "fleet", "gangs", "started", "finished", "wait p50", "wait p95", "GPU-hours", "evictions",
    "lost GPU-hours",
)  # fmt: skip
TOTAL_COLUMNS: Final = (
    "fleet", "wait p50", "wait p95", "finished", "GPU-hours", "bought", "utilisation", "evictions", "lost GPU-hours",
    "lost USD", "USD", "machines",
)  # fmt: skip


def waited(seconds: float) -> str:
    """Returns how long somebody waited, in words."""
    return format_duration(round(seconds))


def amount(value: float) -> str:
    """Returns an amount with separators, as exact as it takes to read it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def total_rows(outcomes: Sequence[ReplayOutcome]) -> list[list[str]]:
    """Returns a row for each outcome (`TOTAL_COLUMNS`)."""
    return [
        [
            it.name,
            waited(it.total.wait_p50_s),
            waited(it.total.wait_p95_s),
            f"{it.total.finished:,} of {it.total.gangs:,}",
            amount(it.total.gpu_h),
            amount(it.bought_gpu_h),
            f"{100 * it.utilisation:.1f} %",
            f"{it.total.evictions:,}",
            amount(it.total.lost_gpu_h),
            amount(it.lost_usd),
            amount(it.usd),
            f"{it.machines:,}",
        ]
        for it in outcomes
    ]


def queue_rows(outcomes: Sequence[ReplayOutcome]) -> list[list[str]]:
    """Returns a row for each queue and outcome, so that those of a queue stand together (`QUEUE_COLUMNS`)."""
    queues = sorted({queue.queue for it in outcomes for queue in it.queues})
    found = {(queue.queue, number): queue for number, it in enumerate(outcomes) for queue in it.queues}
    return [
        _queue_row(found[queue, number], it.name)
        for queue in queues
        for number, it in enumerate(outcomes)
        if (queue, number) in found
    ]


def _queue_row(it: QueueOutcome, fleet: str) -> list[str]:
    return [
        it.queue,
        fleet,
        f"{it.gangs:,}",
        f"{it.started:,}",
        f"{it.finished:,}",
        waited(it.wait_p50_s),
        waited(it.wait_p95_s),
        amount(it.gpu_h),
        f"{it.evictions:,}",
        amount(it.lost_gpu_h),
    ]


def notes(outcomes: Sequence[ReplayOutcome]) -> Iterator[str]:
    """Yields what there is to know beside the numbers: who waits at the end and for what, what was not decided."""
    for it in outcomes:
        if it.waiting_for:
            told = ", ".join(f"{reason} {count:,}" for reason, count in it.waiting_for)
            yield f"{it.name}: waiting at the end: {told}"
        yield from (f"{it.name}: nothing could be decided about {words}" for words in it.undecided)


def to_table(outcomes: Sequence[ReplayOutcome]) -> str:
    """Returns the tables for a terminal, escaped."""
    blocks = [_aligned(TOTAL_COLUMNS, total_rows(outcomes)), _aligned(QUEUE_COLUMNS, queue_rows(outcomes))]
    told = "\n".join(plain(note) for note in notes(outcomes))
    return "\n\n".join(filter(None, [*blocks, told])) + "\n"


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = [[plain(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return "\n".join("  ".join(_padded(row, widths)).rstrip() for row in shown)


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if number == 0 else cell.rjust(width)


def to_markdown(outcomes: Sequence[ReplayOutcome]) -> str:
    """Returns the tables for a comment of a forge, escaped."""
    blocks = [_markdown(TOTAL_COLUMNS, total_rows(outcomes)), _markdown(QUEUE_COLUMNS, queue_rows(outcomes))]
    told = "\n".join(f"- {markdown(plain(note))}" for note in notes(outcomes))
    return "\n\n".join(filter(None, ["### Replay", *blocks, told])) + "\n"


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escape: Callable[[str], str] = lambda cell: markdown(plain(cell)).replace("|", "\\|")  # noqa: E731
    shown = [columns, ["---", *("---:" for _ in columns[1:])], *([escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def to_json(outcomes: Sequence[ReplayOutcome]) -> dict[str, Any]:
    """Returns the outcomes for programs; seconds, GPU-hours and USD, with the series behind the charts."""
    return {
        "format_version": FORMAT_VERSION,
        "outcomes": [
            {**asdict(it), "utilisation": it.utilisation, "waiting_for": dict(it.waiting_for)} for it in outcomes
        ],
    }
