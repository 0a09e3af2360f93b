"""The forecast comes after the comment, once for each head and base, and only where the work may be known."""

from typing import Any

import pytest

from agent.review.forecaster import Forecaster, Proposed
from fleet.review.comment import LOOKED_AT_S
from fleet.review.forecast import forecast_block
from model.fleet import Fleet
from providers.forge.port import ForgeUnreachable
from tests.agent.review.place import BASE, HEAD, NEXT, ReviewPlace, WhilePlanning, two_pools
from tests.agent.scenes import simple


class NotYet(Forecaster):
    """A forecaster whose process is the test."""

    def __init__(self) -> None:
        super().__init__(None, lambda: None)  # type: ignore[arg-type]
        self.asked: list[tuple[int, Proposed]] = []

    def _make(self, request: int, proposed: Proposed, before: Fleet, after: Fleet, now_s: float) -> None:
        assert before != after
        assert now_s > 0.0
        self.asked.append((request, proposed))

    def ready(self, words: str = "fortytwo") -> None:
        self._threads.submit(lambda: None).result()
        request, proposed = self.asked[-1]
        if self._wanted.get(request) == proposed:
            self._made[request] = forecast_block(*proposed, 7, words)


def forecasting(place: ReviewPlace | None = None, **more: Any) -> tuple[ReviewPlace, NotYet]:
    place, forecasts = place or ReviewPlace(**more), NotYet()
    place.forecasts = forecasts
    place.reviewer = place.restarted()
    return place, forecasts


def test_the_comment_comes_first_and_its_forecast_later_and_once() -> None:
    place, forecasts = forecasting()
    place.proposes(two_pools())
    place.reviewer.look()
    assert "would come into force" in place.forge.text(7)
    assert "Forecast" not in place.forge.text(7)
    forecasts.ready()
    place.reviewer.look()
    text = place.forge.text(7)
    assert text.index("would come into force") < text.index("Forecast: the last 7 days again") < text.index("fortytwo")
    assert text.count("<!-- /muster-section -->") == 1
    place.reviewer.look()
    assert place.forge.writes == 2
    place, forecasts = forecasting(place)
    place.reviewer.look()
    assert (place.forge.writes, forecasts.asked) == (2, []), "it stands, whoever made it"


def test_it_stays_with_its_head_and_base_whatever_else_is_said() -> None:
    place, forecasts = forecasting()
    place.proposes(two_pools())
    place.reviewer.look()
    forecasts.ready()
    place.reviewer.look()
    for number in range(5):
        place.forge.comment(7, "ada", f"/muster why nobody{number}")
        place.reviewer.look()
    place.forge.comment(7, "ada", "/muster plan")
    place.reviewer.look()
    text = place.forge.text(7)
    assert text.count("Forecast: ") == 1
    assert text.index("Forecast: ") < text.index("muster-answer")
    assert len(forecasts.asked) == 1
    place.commits.refs["refs/heads/main"] = NEXT
    place.reviewer.look()
    assert "Forecast: " not in place.forge.text(7)
    forecasts.ready("fortythree")
    place.reviewer.look()
    assert "fortythree" in place.forge.text(7)
    assert [of for _, of in forecasts.asked] == [Proposed(HEAD, BASE), Proposed(HEAD, NEXT)]


def test_one_of_a_head_that_was_pushed_over_is_not_told() -> None:
    place, forecasts = forecasting()
    place.proposes(two_pools())
    place.reviewer.look()
    forecasts.ready()
    place.proposes(simple(limits={"nodes": 3}), NEXT)
    place.reviewer.look()
    place.reviewer.look()
    assert "Forecast" not in place.forge.text(7)
    forecasts.ready()
    place.reviewer.look()
    assert f"muster-forecast head={NEXT}" in place.forge.text(7)


@pytest.mark.parametrize("author", ["ada", "mallory"])
def test_who_may_not_ask_for_the_cluster_learns_nothing_of_its_work(author: str) -> None:
    place, forecasts = forecasting()
    place.proposes(two_pools(), author=author)
    place.reviewer.look()
    forecasts._threads.submit(lambda: None).result()
    assert bool(forecasts.asked) is (author == "ada")


def test_none_is_made_of_what_changes_nothing_or_of_what_nobody_looks_at() -> None:
    place, forecasts = forecasting()
    place.proposes(simple())
    place.reviewer.look()
    place.proposes(two_pools(), NEXT, number=8)
    place.clock.advance(LOOKED_AT_S)
    place.reviewer.look()
    forecasts._threads.submit(lambda: None).result()
    assert forecasts.asked == []
    assert place.forge.text(8)


def test_what_a_dead_forge_or_a_lost_term_kept_from_being_told_is_told_later() -> None:
    place, forecasts = forecasting()
    place.proposes(two_pools())
    place.reviewer.look()
    forecasts.ready()
    place.forge.fails = ForgeUnreachable("no answer")
    place.reviewer.look()
    place.forge.fails = None
    place.leads = False
    place.reviewer.look()
    assert "Forecast" not in place.forge.text(7)
    place.leads = True
    place.reviewer.look()
    assert "Forecast" in place.forge.text(7)


def test_the_comment_is_written_while_it_is_made() -> None:
    """A request that is opened while another's forecast is made is planned and answered at once."""
    place, _ = forecasting()
    place.proposes(two_pools())
    place.reviewer.look()
    place.proposes(two_pools(), NEXT, number=8)
    place.reviewer.commits = WhilePlanning(place.commits, lambda: None)
    place.reviewer.look()
    assert "would come into force" in place.forge.text(8)
    assert "Forecast" not in place.forge.text(7)
