"""Outcomes of replays as one HTML page: tables, and charts drawn as SVG, without a script or anything to load."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from fleet.replay.outcome import ReplayOutcome
from fleet.replay.render import QUEUE_COLUMNS, TOTAL_COLUMNS, amount, notes, queue_rows, total_rows, waited
from model.page import COLOURS, html_page, html_table, safe

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 860, 240, 76, 26, 10
_TICKS: Final = 4
Line = tuple[str, str, bool, Sequence[float | None]]
"""Name, colour, whether it is dashed, and its values at equal distances."""


def to_html(outcomes: Sequence[ReplayOutcome]) -> str:
    """Returns one page that needs nothing else; every name in it is escaped."""
    parts = [
        html_table(TOTAL_COLUMNS, total_rows(outcomes)),
        *_charts(outcomes),
        html_table(QUEUE_COLUMNS, queue_rows(outcomes)),
        *(f"<p>{safe(note)}</p>" for note in notes(outcomes)),
    ]
    return html_page("Replay", parts)


def _charts(outcomes: Sequence[ReplayOutcome]) -> Iterator[str]:
    lasts_s = max((it.lasts_s for it in outcomes), default=0.0)
    colours = {number: COLOURS[number % len(COLOURS)] for number, _ in enumerate(outcomes)}
    gpus: list[Line] = []
    for number, it in enumerate(outcomes):
        gpus.append((f"{it.name}: in use", colours[number], False, it.series.used_gpus))
        gpus.append((f"{it.name}: bought", colours[number], True, it.series.bought_gpus))
    yield _chart("GPUs in use and bought", gpus, lasts_s, amount)
    queues = sorted({queue for it in outcomes for queue in it.series.waiting})
    for queue in queues:
        waits = _of(outcomes, colours, lambda it, queue=queue: it.series.wait_p50_s.get(queue))  # type: ignore[misc]
        yield _chart(f"Queue {queue}: median wait of the gangs that came then", waits, lasts_s, waited)
        waiting = _of(outcomes, colours, lambda it, queue=queue: it.series.waiting.get(queue))  # type: ignore[misc]
        yield _chart(f"Queue {queue}: gangs that wait for their first start", waiting, lasts_s, amount)


def _of(
    outcomes: Sequence[ReplayOutcome],
    colours: Mapping[int, str],
    values: Callable[[ReplayOutcome], Sequence[float | None] | None],
) -> list[Line]:
    found = ((it.name, colours[number], values(it)) for number, it in enumerate(outcomes))
    return [(name, colour, False, told) for name, colour, told in found if told is not None]


def _chart(title: str, lines: Sequence[Line], lasts_s: float, told: Callable[[float], str]) -> str:
    most = max((value for *_, values in lines for value in values if value is not None), default=0.0) or 1.0
    parts = [*_axes(most, lasts_s, told), *(_drawn(line, most) for line in lines)]
    legend = "".join(_legend(line) for line in lines)
    picture = "".join(parts)
    frame = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img"'
    return f"<figure><figcaption>{safe(title)}</figcaption>\n<svg {frame}>{picture}</svg>\n<div>{legend}</div></figure>"


def _legend(line: Line) -> str:
    name, colour, dashed, _ = line
    return f'<span style="color:{colour}">{"- -" if dashed else "&#8212;"} {safe(name)}</span> &#160; '


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / most


def _x(place: float) -> float:
    """Returns where a part (of 1) of the time stands."""
    return _LEFT + (_WIDTH - _LEFT - 10) * place


def _axes(most: float, lasts_s: float, told: Callable[[float], str]) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        value = most * tick / _TICKS
        y = _y(value, most)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 10}" stroke="#e5e5e5"/>'
        label = f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end">'
        yield f"{label}{safe(told(value))}</text>"
        x = _x(tick / _TICKS)
        label = f'<text x="{x:.1f}" y="{_HEIGHT - 6}" font-size="11" text-anchor="middle">'
        yield f"{label}{safe(waited(lasts_s * tick / _TICKS))}</text>"


def _drawn(line: Line, most: float) -> str:
    """Returns a line, broken where there is no value; a value between two that are missing is a short stroke."""
    _, colour, dashed, values = line
    last = max(1, len(values) - 1)
    points = [None if it is None else (_x(place / last), _y(it, most)) for place, it in enumerate(values)]
    path = "".join(
        f"{'L' if before is not None else 'M'}{point[0]:.1f} {point[1]:.1f}{'' if before is not None else 'h1'}"
        for before, point in pairwise([None, *points])
        if point is not None
    )
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'
