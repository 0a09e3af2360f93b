"""Rows in Volcano's words as Volcano's own queues, which the agent reads, and as a cluster."""

from collections.abc import Mapping
from typing import Any, Final

from fleet.snapshot import Node
from model.fleet import Fleet
from model.kinds import RequirementTerm
from model.quantity import canonical_resources
from tests.conformance.cases import Case
from tests.conformance.gangs_agent.cluster import RowCluster
from tests.conformance.gangs_agent.declined import RowDeclined


def translate(case: Case) -> RowCluster:
    """Returns a row as declarations and a cluster; RowDeclined where it says what they cannot."""
    raise RowDeclined("volcano is not translated yet")
