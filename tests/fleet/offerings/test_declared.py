"""What a revision declares, held against what its region sells, by the package and by a live catalogue."""

import pytest

from fleet.offerings.conditions import condition_steps
from fleet.offerings.declared import catalog_checks
from fleet.offerings.declared_pools import MOST_POOLS
from fleet.offerings.listing import CatalogListing
from fleet.snapshot import Catalog
from model.loader import inspect
from model.problem import Code, Problem
from providers.aws.catalog import package_catalog
from providers.aws.listing import PackageListing
from tests.model.loader.writing import declare

US = PackageListing("us-east-1")
LIVE = CatalogListing(package_catalog("us-east-1").catalog)


def told(*documents: str, listing: CatalogListing = US) -> list[Problem]:
    files = {"f.yaml": "---\n".join(documents).encode()}
    return list(inspect(files, further=catalog_checks(listing)).problems)


def pool(spec: str, name: str = "p") -> str:
    return declare("NodePool", name, spec)


def policy(*names: str) -> str:
    return declare("FleetPolicy", "rules", f"{{allowUnknown: [{', '.join(names)}]}}")


def terms(key: str, values: str, operator: str = "In") -> str:
    return f"{{requirements: [{{key: {key}, operator: {operator}, values: [{values}]}}]}}"


KARPENTER = """apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: k}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}
      requirements:
        - {key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge, p5.48xl]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: c}
spec:
  role: r
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""

UNKNOWN = [
    (pool("{instanceTypes: [p5.48xl]}"), "spec.instanceTypes[0]", "'p5.48xl' is no instance type", "'p5.48xlarge'"),
    (pool("{instanceTypes: [p4d.24xlarge, pp5.48xlarge]}"), "spec.instanceTypes[1]", "'pp5.48xlarge'", "'p5.48xlarge'"),
    (pool("{instanceTypes: [zz9.plural]}"), "spec.instanceTypes[0]", "'zz9.plural'", "allowUnknown"),
    (pool("{instanceFamilies: [p5, p55]}"), "spec.instanceFamilies[1]", "no instance family", "did you mean 'p5'?"),
    (pool("{gpu: {models: [h1000]}}"), "spec.gpu.models[0]", "no GPU model", "did you mean 'h100'?"),
    (pool("{zones: [us-east-1a, us-east-1z]}"), "spec.zones[1]", "no zone", "did you mean 'us-east-1"),
    (pool("{zones: [eu-west-1a]}"), "spec.zones[0]", "of us-east-1", "it is a zone of eu-west-1"),
    (
        pool(terms("karpenter.k8s.aws/instance-family", "g6e, p5nn")),
        "spec.requirements[0].values[1]",
        "no instance family",
        "did you mean 'p5en'?",
    ),
    (
        pool(terms("beta.kubernetes.io/instance-type", "g6.xlarg")),
        "spec.requirements[0].values[0]",
        "no instance type",
        "did you mean 'g6.xlarge'?",
    ),
    (pool(terms("kubernetes.io/arch", "x86_64")), "spec.requirements[0].values[0]", "no architecture", ""),
    (
        declare("NodeOverlay", "o", "{price: '1.0', " + terms("karpenter.sh/capacity-type", "Spot")[1:]),
        "spec.requirements[0].values[0]",
        "no capacity type",
        "'spot'",
    ),
    (
        pool("{template: {labels: {node.kubernetes.io/instance-type: p5.48xl}}}"),
        'spec.template.labels["node.kubernetes.io/instance-type"]',
        "no instance type",
        "'p5.48xlarge'",
    ),
    (
        declare("NodeOverlay", "o", "{price: '1.0', " + terms("karpenter.k8s.aws/instance-gpu-name", "h1000")[1:]),
        "spec.requirements[0].values[0]",
        "no GPU model",
        "did you mean 'h100'?",
    ),
    (KARPENTER, "spec.template.spec.requirements[0].values[1]", "'p5.48xl' is no instance type", "'p5.48xlarge'"),
]


@pytest.mark.parametrize("listing", [US, LIVE], ids=["package", "live"])
@pytest.mark.parametrize(("document", "path", "message", "hint"), UNKNOWN)
def test_names_that_nobody_knows(document: str, path: str, message: str, hint: str, listing: CatalogListing) -> None:
    if "it is a zone of" in hint and listing is LIVE:
        hint = "allowUnknown"  # a live catalogue knows its own region only
    (problem,) = told(document, listing=listing)
    assert (problem.path, problem.severity, problem.code) == (path, "error", Code.UNKNOWN_NAME)
    assert message in problem.message
    assert hint in problem.hint
    assert problem.line > 0
    assert problem.excerpt


@pytest.mark.parametrize(("document", "path", "message", "hint"), UNKNOWN)
def test_a_name_that_the_policy_vouches_for_is_no_error(document: str, path: str, message: str, hint: str) -> None:
    name = told(document)[0].message.split("'")[1]
    assert not [problem for problem in told(document, policy(name)) if problem.severity == "error"]


def test_the_place_is_in_the_manifest_of_karpenter() -> None:
    (problem,) = told(KARPENTER)
    assert KARPENTER.splitlines()[problem.line - 1][problem.column - 1 :].startswith("p5.48xl]")


def test_what_is_only_excluded_may_be_meant() -> None:
    (problem,) = told(pool(terms("node.kubernetes.io/instance-type", "p5.48xl", "NotIn")))
    assert (problem.severity, problem.code) == ("warning", Code.UNKNOWN_NAME)


def test_machines_that_nobody_buys_may_be_anything() -> None:
    (problem,) = told(declare("Flavor", "own", "{nodeLabels: {topology.kubernetes.io/zone: cellar}}"))
    assert problem.severity == "warning"


def test_a_catalogue_that_knows_more_refuses_nothing_that_it_knows() -> None:
    known = package_catalog("us-east-1").catalog
    machine = known.types["p5.48xlarge"]
    newer = machine.__class__(**{
        **{name: getattr(machine, name) for name in machine.__slots__},
        "name": "p9.48xlarge",
        "labels": {**machine.labels, "node.kubernetes.io/instance-type": "p9.48xlarge"},
    })  # fmt: skip
    offer = next(offer for offer in known.offers if offer.instance_type is machine)
    live = known.__class__(
        region=known.region,
        types={**known.types, newer.name: newer},
        offers=(*known.offers, offer.__class__(newer, offer.zone, "on-demand", 99.0)),
    )
    document = pool("{instanceTypes: [p9.48xlarge]}")
    assert told(document)[0].code is Code.UNKNOWN_NAME
    assert told(document, listing=CatalogListing(live)) == []


def test_no_catalogue_yet_says_nothing() -> None:
    assert told(pool("{instanceTypes: [p5.48xl]}"), listing=CatalogListing(Catalog())) == []


def test_a_slip_is_told_of_once() -> None:
    problems = told(pool("{instanceTypes: [ml.p5.48xlarge]}"))
    assert [problem.code for problem in problems] == [Code.INVALID_VALUE]


# -- pools that can never buy ------------------------------------------------------------------------------------------

NOTHING = [
    ("{instanceTypes: [g6.xlarge], gpu: {models: [h100]}}", "spec.instanceTypes", "instanceTypes g6.xlarge"),
    ("{instanceFamilies: [p5], gpu: {minCount: 9}}", "spec.gpu", "gpu minCount 9"),
    ("{gpu: {models: [h100], minMemoryMiB: 200000}}", "spec.gpu", "gpu"),
    ("{instanceFamilies: [g6], placement: {efa: true}, instanceTypes: [g6.xlarge]}", "spec.placement.efa", "efa"),
    (
        "{instanceTypes: [p5.48xlarge], requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}",
        "spec.requirements[0]",
        "requirement kubernetes.io/arch In [arm64]",
    ),
    (
        "{requirements: [{key: karpenter.k8s.aws/instance-gpu-count, operator: In, values: ['3']}]}",
        "spec.requirements[0]",
        "instance-gpu-count",
    ),
]


@pytest.mark.parametrize("listing", [US, LIVE], ids=["package", "live"])
@pytest.mark.parametrize(("spec", "path", "words"), NOTHING)
def test_a_pool_that_can_never_buy(spec: str, path: str, words: str, listing: CatalogListing) -> None:
    (problem,) = told(pool(spec), listing=listing)
    assert (problem.code, problem.severity, problem.path) == (Code.NO_OFFER, "error", path)
    assert words in problem.message


def test_a_zone_that_does_not_offer_the_type() -> None:
    sold = {
        offer.zone
        for offer in package_catalog("us-east-1").catalog.offers
        if offer.instance_type.name == "p4de.24xlarge"
    }
    other = min(set(US.zones) - sold)
    (problem,) = told(pool(f"{{instanceTypes: [p4de.24xlarge], zones: [{other}]}}"))
    assert (problem.code, problem.path) == (Code.NO_OFFER, "spec.zones")
    assert "p4de.24xlarge" in problem.message


def test_reserved_machines_need_no_offer() -> None:
    assert told(pool("{instanceTypes: [p5e.48xlarge], capacityTypes: [reserved]}")) == []
    (problem,) = told(pool("{instanceTypes: [p5e.48xlarge], gpu: {models: [a100]}, capacityTypes: [reserved]}"))
    assert problem.code is Code.NO_OFFER


def test_a_type_that_the_region_does_not_sell_beside_one_that_it_does() -> None:
    (problem,) = told(pool("{instanceTypes: [p5.48xlarge, p5e.48xlarge]}"))
    assert (problem.severity, problem.path) == ("warning", "spec.instanceTypes[1]")


def test_too_few_kinds_for_min_values() -> None:
    term = "{key: karpenter.k8s.aws/instance-family, operator: Exists, minValues: 2}"
    (problem,) = told(pool(f"{{instanceTypes: [p5.48xlarge], requirements: [{term}]}}"))
    assert (problem.code, problem.path) == (Code.NO_OFFER, "spec.requirements[0].minValues")


def test_an_overlay_about_nothing() -> None:
    wanted = (
        "{price: '1', requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [p5]}, "
        "{key: kubernetes.io/arch, operator: In, values: [arm64]}]}"
    )
    (problem,) = told(declare("NodeOverlay", "o", wanted))
    assert (problem.code, problem.severity) == (Code.NO_OFFER, "warning")


def test_a_region_of_which_nothing_is_known_leaves_offers_alone() -> None:
    nowhere = PackageListing("xx-nowhere-1")
    assert told(pool("{instanceTypes: [p5.48xlarge], zones: [xx-nowhere-1a]}"), listing=nowhere) == []
    assert told(pool("{instanceTypes: [p5.48xl]}"), listing=nowhere)[0].code is Code.UNKNOWN_NAME


@pytest.mark.slow
def test_a_fleet_of_many_odd_pools_is_told_of_in_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pool asks for another number of cores, which nothing has; the way to nothing is shown for a few only."""
    ways = []
    monkeypatch.setattr(
        "fleet.offerings.declared_pools.condition_steps",
        lambda pool, offerings: ways.append(pool.name) or condition_steps(pool, offerings),
    )
    key = "karpenter.k8s.aws/instance-cpu"
    found = told(*(pool(terms(key, f"'{9000 + number}'"), f"p{number:03}") for number in range(600)))
    empty = [problem for problem in found if problem.code is Code.NO_OFFER]
    assert len(empty) == MOST_POOLS
    assert len(ways) == 5
    assert all(problem.line > 0 for problem in empty)


# -- quotas and limits -------------------------------------------------------------------------------------------------


def team(name: str, flavor: str, amounts: str) -> str:
    return declare("Team", name, f"{{quotas: {{{flavor}: {{guaranteed: {amounts}}}}}}}")


P5 = "instanceTypes: [p5.48xlarge]"
BEYOND = [
    ("{nodes: 4}", "{nvidia.com/gpu: 33}", "32"),
    ("{resources: {nvidia.com/gpu: 16}}", "{nvidia.com/gpu: 17}", "16"),
    ("{resources: {cpu: 400}}", "{nvidia.com/gpu: 33}", "16"),
    ("{usdPerHour: 100.0}", "{nvidia.com/gpu: 64}", ""),
    ("{resources: {nvidia.com/gpu: 8}}", "{memory: 5Ti}", "1939865Mi"),
]


@pytest.mark.parametrize(("limits", "amounts", "most"), BEYOND)
def test_guarantees_beyond_the_limits_of_the_pool(limits: str, amounts: str, most: str) -> None:
    (problem,) = told(pool(f"{{{P5}, capacityTypes: [on-demand], limits: {limits}}}"), team("t", "p", amounts))
    assert (problem.code, problem.severity) == (Code.QUOTA_BEYOND_LIMITS, "warning")
    assert problem.path.startswith("spec.quotas.p.guaranteed")
    assert f"more than {most}" in problem.message


@pytest.mark.parametrize(
    "documents",
    [
        (pool(f"{{{P5}}}"), team("t", "p", "{nvidia.com/gpu: 100000}")),
        (pool(f"{{{P5}, limits: {{nodes: 4}}}}"), team("t", "p", "{nvidia.com/gpu: 32, cpu: 768}")),
        (pool(f"{{{P5}, limits: {{nodes: 4}}}}"), team("t", "p", "{example.com/fpga: 99}")),
        (
            pool(f"{{{P5}, limits: {{nodes: 4}}}}"),
            pool(f"{{{P5}, limits: {{nodes: 4}}}}", "q"),
            declare("Flavor", "f", "{nodePools: [p, q]}"),
            team("t", "f", "{nvidia.com/gpu: 64}"),
        ),
        (
            pool(f"{{{P5}, limits: {{nodes: 1}}, sharing: {{timeSlicing: {{replicas: 4}}}}}}"),
            team("t", "p", "{nvidia.com/gpu: 32}"),
        ),
    ],
)  # fmt: skip
def test_guarantees_that_can_be_kept(documents: tuple[str, ...]) -> None:
    assert told(*documents) == []


def test_guarantees_of_all_teams_and_flavors_count_together() -> None:
    documents = (
        pool(f"{{{P5}, limits: {{nodes: 4}}}}"),
        declare("Flavor", "f", "{nodePools: [p]}"),
        team("a", "p", "{nvidia.com/gpu: 16}"),
        team("b", "f", "{nvidia.com/gpu: 16}"),
        team("c", "p", "{nvidia.com/gpu: 8}"),
    )
    (problem,) = told(*documents)
    assert "guarantee 40 of nvidia.com/gpu" in problem.message
    assert told(*documents[:-1]) == []


def test_slices_are_bounded_by_what_the_layout_cuts() -> None:
    documents = (
        declare("MigLayout", "small", "{models: {h100-80gb: [{profiles: {1g.10gb: 7}}]}}"),
        pool(f"{{{P5}, gpu: {{models: [h100]}}, sharing: {{mig: {{layouts: [small]}}}}, limits: {{nodes: 1}}}}"),
    )
    assert told(*documents, team("t", "p", "{nvidia.com/mig-1g.10gb: 56}")) == []
    (problem,) = told(*documents, team("t", "p", "{nvidia.com/mig-1g.10gb: 57}"))
    assert "never hold more than 56" in problem.message
