"""Samples of equal log lines, and what libraries log."""

import logging

from structlog.testing import capture_logs

from agent.logs import BURST, WINDOW_S, LibraryRecords, LogSampler
from providers.clock import VirtualClock


def test_of_equal_lines_a_few_are_written_and_the_next_window_says_how_many_were_not() -> None:
    clock = VirtualClock()
    sampler = LogSampler(clock.monotonic)
    assert [sampler.admit("a") for _ in range(BURST + 7)] == [0] * BURST + [None] * 7
    assert sampler.admit("b") == 0, "others are not held back"
    clock.advance(WINDOW_S)
    assert [sampler.admit("a") for _ in range(BURST + 1)] == [7, *[0] * (BURST - 1), None]


def test_what_is_known_of_lines_is_bounded() -> None:
    sampler = LogSampler(VirtualClock().monotonic)
    for number in range(100_000):
        sampler.admit(number)
    assert len(sampler._seen) <= 256


def record(message: str, *arguments: object, failure: Exception | None = None) -> logging.LogRecord:
    about = (type(failure), failure, None) if failure else None
    return logging.LogRecord("aiohttp.server", logging.ERROR, "x.py", 1, message, arguments, about)


def test_records_of_libraries_are_sampled_by_their_template() -> None:
    handler = LibraryRecords(LogSampler(VirtualClock().monotonic))
    with capture_logs() as lines:
        for number in range(1000):
            handler.emit(record("Error handling request from %s", f"10.0.0.{number}", failure=ValueError("x")))
        handler.emit(record("another\x1b[31m\n%s", "x" * 5000))
        handler.emit(record("%d is no number", "x"))
    assert len(lines) == BURST + 2
    first, *_, long, odd = lines
    assert (first["event"], first["logger"], first["log_level"]) == ("library_says", "aiohttp.server", "error")
    assert first["exc_info"]
    assert long["said"].startswith(r"another\x1b[31m\nxxx")
    assert len(long["said"]) <= 1024
    assert odd["said"] == "%d is no number"
