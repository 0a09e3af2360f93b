"""Rows of `mig-geometry`: can these instances exist together on one GPU?"""

from model.mig import Impossible, feasible, mig_models
from tests.conformance.cases import Case

READ = {"id", "model", "layout", "valid", "instances", "order_sensitive", "source", "config", "driver_memory_gb"}


def run(case: Case) -> bool:
    """Whether the geometry has a place for every instance of the row."""
    if unknown := case.keys() - READ - {"suite", "kind", "asked", "expect"}:
        raise ValueError(f"unknown field {min(unknown)}")
    if case.get("instances", sum(case["layout"].values())) != sum(case["layout"].values()):
        raise ValueError("the row counts its instances otherwise")
    return not isinstance(feasible(mig_models()[_model(case)], case["layout"]), Impossible)


def _model(case: Case) -> str:
    """Our name of the row's GPU: drivers that name its memory otherwise are a model of their own."""
    named = case.get("driver_memory_gb")
    if named is None:
        return str(case["model"])
    stem = case["model"].removesuffix("gb").rstrip("0123456789").removesuffix("-")
    return f"{stem if case['model'].endswith('gb') else case['model']}-{named}gb"
