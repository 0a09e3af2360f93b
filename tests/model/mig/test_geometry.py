"""What fits on one GPU: published counts, feasible and infeasible layouts, and an independent check of every proof."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.mig import Impossible, MigPlacement, best_multisets, every_layout, feasible, mig_models
from tests.support.shared import shared_path

A100, H100, A30, RTX = (
    mig_models()[name] for name in ("a100-40gb", "h100-80gb", "a30-24gb", "rtx-pro-6000-blackwell-96gb")
)
PLAIN = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


@pytest.mark.parametrize(
    ("model", "names", "placed", "undominated"),
    [
        (A100, PLAIN, 297, 12),
        (A100, (*PLAIN, "1g.10gb"), 722, 28),
        (A100, None, 2318, 44),
        (A30, ("1g.6gb", "2g.12gb", "4g.24gb"), 25, 4),
        (A30, None, 75, 8),
        (RTX, ("1g.24gb", "2g.48gb", "4g.96gb"), 25, 4),
    ],
)
def test_enumeration(model, names, placed: int, undominated: int) -> None:  # type: ignore[no-untyped-def]
    """Numbers of NVIDIA's user guide (the 12, 18/19 layouts of an A100) and of an exhaustive search."""
    every = list(every_layout(model, names))
    assert len(every) == placed
    assert len({frozenset(layout) for layout in every}) == placed
    assert len(best_multisets(model, names)) == undominated


def test_enumeration_of_the_reference() -> None:
    checks = json.loads(shared_path("data/mig_layout_checks.json").read_text())["checks"]
    ids = {"a100-40gb": A100, "a30": A30, "rtx6000": RTX}
    for name, check in checks.items():
        if "/" not in name:
            continue
        model = ids[name.split("/")[0]]
        every = [frozenset(layout) for layout in every_layout(model, tuple(check["profiles"]))]
        whole = set(every)
        slots = [(name, start) for name in check["profiles"] for start in model.profiles[name].starts]
        maximal = [one for one in every if not any(one | {slot} in whole for slot in slots if slot not in one)]
        multisets = {frozenset(Counter(profile for profile, _ in one).items()) for one in every}
        top = {frozenset(Counter(profile for profile, _ in one).items()) for one in maximal}
        assert len(every) == check["positional_all_nonempty"], name
        assert len(maximal) == check["positional_maximal"], name
        assert len(multisets) == check["multisets_all_nonempty"], name
        assert len(top) == check["multisets_maximal_positional"], name
        assert len(best_multisets(model, tuple(check["profiles"]))) == check["multisets_maximal"], name


FITS = [
    ("a100-40gb", {"7g.40gb": 1}),
    ("a100-40gb", {"4g.20gb": 1, "3g.20gb": 1}),
    ("a100-40gb", {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}),
    ("a100-40gb", {"1g.5gb+me": 1, "1g.5gb": 6}),
    ("h100-80gb", {"1g.20gb": 4}),
    ("h100-80gb", {"3g.40gb": 2}),
    ("h100-80gb", {}),
    ("a30-24gb", {"2g.12gb": 1, "1g.6gb": 2}),
    ("rtx-pro-6000-blackwell-96gb", {"1g.24gb+me.all": 1, "1g.24gb-me": 3}),
]
DOES_NOT_FIT = [
    ("a100-40gb", {"3g.20gb": 2, "1g.5gb": 1}, "needs 9 memory slices; NVIDIA A100 40 GB has 8"),
    ("a100-40gb", {"2g.10gb": 4}, "at most 3 fit"),
    ("a100-40gb", {"4g.20gb": 1, "1g.5gb": 4}, "needs 8 compute slices"),
    ("a100-40gb", {"1g.5gb+me": 2}, "at most 1 fit"),
    ("a100-40gb", {"1g.5gbb": 1}, "did you mean '1g.5gb'?"),
    ("a100-40gb", {"9g.90gb": 1}, "it has '1g.10gb', '1g.5gb'"),
    ("a100-40gb", {"1g.10gb": 3, "1g.5gb": 1, "2g.10gb": 1}, "memory slices"),
    ("a30-24gb", {"2g.12gb+me": 1, "1g.6gb+me": 1}, "needs 2 JPEG engines"),
    ("rtx-pro-6000-blackwell-96gb", {"1g.24gb+me.all": 1, "1g.24gb": 3}, "suffix -me take none"),
    ("rtx-pro-6000-blackwell-96gb", {"4g.96gb": 1, "1g.24gb-me": 1}, "compute slices"),
]


@pytest.mark.parametrize(("model", "counts"), FITS)
def test_fits(model: str, counts: dict[str, int]) -> None:
    placement = feasible(mig_models()[model], counts)
    assert isinstance(placement, MigPlacement)
    assert Counter(name for name, _ in placement.instances) == Counter(counts)


@pytest.mark.parametrize(("model", "counts", "reason"), DOES_NOT_FIT)
def test_does_not_fit(model: str, counts: dict[str, int], reason: str) -> None:
    assert reason in str(feasible(mig_models()[model], counts))


def test_layout_feasibility_of_the_reference() -> None:
    vectors = json.loads(shared_path("data/test_vectors.json").read_text())["layout_feasibility"]
    for name, rows in vectors.items():
        for row in rows if isinstance(rows, list) else ():
            found = feasible(mig_models()[name], row["want"])
            assert isinstance(found, MigPlacement) == row["ok"], (name, row, found)


@given(st.sampled_from(sorted(mig_models())), st.data())
def test_agrees_with_exhaustive_search(name: str, data: st.DataObject) -> None:
    """`feasible` says yes exactly for the multisets that the enumeration contains, and its proof holds."""
    model = mig_models()[name]
    counts = data.draw(st.dictionaries(st.sampled_from(sorted(model.profiles)), st.integers(1, 4), min_size=1))
    found = feasible(model, counts)
    if isinstance(found, Impossible):
        assert not _exists(name, counts)
        return
    assert _exists(name, counts)
    taken = [unit for profile, start in found.instances for unit in _units(name, profile, start)]
    assert len(taken) == len(set(taken))
    assert found.free_units == model.units - len(taken)


def _units(model: str, profile: str, start: int) -> range:
    facts = mig_models()[model].profiles[profile]
    assert start in facts.starts
    return range(start, start + facts.size)


_MULTISETS: dict[str, set[frozenset[tuple[str, int]]]] = {}


def _exists(model: str, counts: dict[str, int]) -> bool:
    if model not in _MULTISETS:
        placed = every_layout(mig_models()[model])
        _MULTISETS[model] = {frozenset(Counter(name for name, _ in layout).items()) for layout in placed}
    return frozenset(counts.items()) in _MULTISETS[model]
