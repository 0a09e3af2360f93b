"""Why requirements do not meet, in words."""

from bench.reference.karpenter.buy.words import incompatibilities
from model.labels import ZONE
from model.requirements import Requirements


def test_explanations_name_key_and_both_sides() -> None:
    mine = Requirements.from_labels({ZONE: "us-east-1a", "team": "a"})
    wanted = Requirements.from_labels({ZONE: "us-east1a", "taem": "a"})
    undefined, elsewhere = incompatibilities(mine, wanted)
    assert str(undefined) == "label 'taem' is required (In [a]) but has no known values; did you mean 'team'?"
    assert str(elsewhere) == (
        "label 'topology.kubernetes.io/zone': wanted In [us-east1a], offered In [us-east-1a]; "
        "did you mean 'us-east-1a'?"
    )
