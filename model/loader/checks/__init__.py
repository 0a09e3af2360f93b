"""What must hold between declarations. Each check is a function of all of them; `CHECKS` is the table."""

from collections.abc import Callable, Iterator

from model.loader.checks.buffers import buffers_without_effect
from model.loader.checks.fair_sharing import use_not_remembered, use_remembered_oddly, weights_for_nobody
from model.loader.checks.flavors import (
    ambiguous_flavors,
    equivalents_of_replicas,
    profiles_without_quota,
    quotas_without_capacity,
)
from model.loader.checks.layouts import impossible_layouts, layouts_that_do_not_suit
from model.loader.checks.overlays import malformed_overlays, overlays_in_conflict
from model.loader.checks.pools import (
    groups_of_two_kinds,
    impossible_requirements,
    malformed_terms,
    misspelt_machines,
    too_many_machines,
)
from model.loader.checks.references import dangling_references
from model.loader.checks.repetitions import repeated_values
from model.loader.checks.schedules import invalid_windows
from model.loader.checks.spelling import misspelt_names
from model.loader.checks.teams import namespaces_claimed_twice, queues_of_others, queues_past_fences, team_cycles
from model.loader.checks.tidiness import several_policies, unused_declarations
from model.loader.checks.topologies import misordered_levels
from model.loader.checks.upstream import (
    ambiguous_doors,
    ambiguous_resource_flavors,
    checks_on_no_flavor,
    cohort_cycles,
    names_of_one_tree,
)
from model.loader.declarations import Declarations
from model.loader.joining import unused_classes
from model.problem import Problem

Check = Callable[[Declarations], Iterator[Problem]]

CHECKS: tuple[Check, ...] = (
    dangling_references,
    team_cycles,
    namespaces_claimed_twice,
    queues_of_others,
    queues_past_fences,
    malformed_terms,
    impossible_requirements,
    misspelt_machines,
    too_many_machines,
    groups_of_two_kinds,
    repeated_values,
    invalid_windows,
    misordered_levels,
    impossible_layouts,
    layouts_that_do_not_suit,
    ambiguous_flavors,
    quotas_without_capacity,
    profiles_without_quota,
    equivalents_of_replicas,
    misspelt_names,
    several_policies,
    names_of_one_tree,
    cohort_cycles,
    ambiguous_resource_flavors,
    ambiguous_doors,
    malformed_overlays,
    overlays_in_conflict,
    unused_declarations,
    unused_classes,
    checks_on_no_flavor,
    use_not_remembered,
    weights_for_nobody,
    use_remembered_oddly,
    buffers_without_effect,
)

__all__ = ["CHECKS", "Check"]
