"""Kind `topology`: nodes, pods, levels and pod sets to domains with counts, or a refusal."""

from tests.conformance.cases import Runner

RUNNERS: dict[str, Runner] = {}
