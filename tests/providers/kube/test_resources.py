import pytest

from providers.kube.resources import LEASES, PODS, ResourcePath

NODES = ResourcePath("", "v1", "nodes", namespaced=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.collection(), "/api/v1/pods"),
        (PODS.collection("team-a"), "/api/v1/namespaces/team-a/pods"),
        (PODS.object("p", "team-a"), "/api/v1/namespaces/team-a/pods/p"),
        (PODS.object("p", "team-a", "eviction"), "/api/v1/namespaces/team-a/pods/p/eviction"),
        (NODES.object("ip-10-0-0-1.ec2.internal"), "/api/v1/nodes/ip-10-0-0-1.ec2.internal"),
        (LEASES.object("x", "y"), "/apis/coordination.k8s.io/v1/namespaces/y/leases/x"),
        (PODS.object("a/b?c#d", "n"), "/api/v1/namespaces/n/pods/a%2Fb%3Fc%23d"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_cannot_climb(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        NODES.object(name)
    with pytest.raises(ValueError):
        PODS.object("p", name)


def test_scope_is_checked() -> None:
    with pytest.raises(ValueError, match="not namespaced"):
        NODES.object("n", "default")
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.object("p")


def test_api_version_and_name() -> None:
    assert (PODS.api_version(), str(PODS)) == ("v1", "pods")
    assert (LEASES.api_version(), str(LEASES)) == ("coordination.k8s.io/v1", "leases.coordination.k8s.io")
