"""Rows of `mig-parted-config-files`: is the file acceptable, and its selected configuration?"""

import yaml

from model.mig.parted import InvalidMigParted, read_mig_parted
from tests.conformance.cases import Case


def run(case: Case) -> bool:
    """Whether the file is read and has the configuration."""
    if unknown := case.keys() - {"id", "config", "selected", "valid", "error", "suite", "kind", "asked", "expect"}:
        raise ValueError(f"unknown field {min(unknown)}")
    try:
        return case["selected"] in read_mig_parted(yaml.safe_load(case["config"]))
    except InvalidMigParted:
        return False
