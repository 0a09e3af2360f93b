"""What the annotations of a pod template ask of topology."""

import pytest

from fleet.snapshot import Slice
from providers.kube.objects.topology import Wishes, whole, wishes_of

KUEUE, OURS = "kueue.x-k8s.io/", "muster.dev/"
LAYERS = "podset-slice-required-topology-constraints"


def nested(*layers: tuple[object, object]) -> str:
    entries = ", ".join(f'{{"topology": "{topology}", "size": {size}}}' for topology, size in layers)
    return f"[{entries}]"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, Wishes()),
        ({"podset-required-topology": "rack"}, Wishes(required="rack")),
        ({"podset-preferred-topology": "rack"}, Wishes(preferred="rack")),
        ({"podset-unconstrained-topology": "true"}, Wishes(anywhere=True)),
        ({"podset-unconstrained-topology": "false"}, Wishes()),
        ({"podset-required-topology": "rack", "podset-preferred-topology": "block"}, Wishes(required="rack")),
        ({"podset-preferred-topology": "r", "podset-unconstrained-topology": "true"}, Wishes(preferred="r")),
        ({"podset-group-name": "ring"}, Wishes(group="ring")),
        (
            {"podset-slice-required-topology": "host", "podset-slice-size": "4"},
            Wishes(slices=(Slice("host", 4),)),
        ),
        ({"podset-slice-required-topology": "host"}, Wishes()),
        ({"podset-slice-required-topology": "host", "podset-slice-size": "0"}, Wishes()),
        ({"podset-slice-required-topology": "host", "podset-slice-size": "four"}, Wishes()),
        ({"podset-slice-size": "4"}, Wishes()),
        ({LAYERS: nested(("rack", 8), ("host", '"2"'))}, Wishes(slices=(Slice("rack", 8), Slice("host", 2)))),
        ({LAYERS: nested(("rack", 8), ("host", 3))}, Wishes()),
        ({LAYERS: nested(*((f"level-{n}", 8) for n in range(4)))}, Wishes()),
        ({LAYERS: '[{"size": 8}]'}, Wishes()),
        ({LAYERS: "["}, Wishes()),
        ({LAYERS: '["rack"]'}, Wishes()),
    ],
)
@pytest.mark.parametrize("prefix", [KUEUE, OURS])
def test_wishes(annotations: dict[str, str], expected: Wishes, prefix: str) -> None:
    assert wishes_of({prefix + name: value for name, value in annotations.items()}) == expected


def test_ours_win() -> None:
    both = {OURS + "podset-required-topology": "rack", KUEUE + "podset-required-topology": "block"}
    assert wishes_of(both).required == "rack"
    sizes = {OURS + "podset-slice-size": "2", KUEUE + "podset-slice-size": "4"}
    assert wishes_of({**sizes, KUEUE + "podset-slice-required-topology": "host"}).slices == (Slice("host", 2),)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("0", None), ("-1", None), ("1.5", None), ("", None), ("x", None), ("9" * 10, None), ("\u0663", None)],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole(text) == number
