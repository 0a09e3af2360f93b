"""One look at the cluster: what the agent's books say of use, as far as one may read them."""

import json
from typing import Any

import pytest

from agent.sources import WATCHED
from agent.world import read_world
from fleet.snapshot import Catalog
from model import labels
from providers.clock import VirtualClock
from providers.kube.errors import Forbidden
from providers.kube.objects.paths import CONFIG_MAPS
from providers.kube.resources import ResourcePath
from providers.sim.direct import DirectTransport
from tests.agent.scenes import Scene, simple

USED = {"at_s": 1.0, "accounts": {"a/q": {"consumed": {"cpu": 5.0}, "penalty": {"cpu": 1.0}}}, "ahead": []}
BOOKS = json.dumps({"month": "2027-01", "total": 0, "by_team": {}, "usage": USED})


def cluster(data: dict[str, str] | None, mark: str = labels.BOOKS) -> DirectTransport:
    """A cluster without an agent, with one ConfigMap that may be its books."""
    scene = Scene(simple(), publishes=False)
    scene.sim.crash()
    metadata = {"name": "books", "namespace": "default", "labels": {mark: "true"}}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    scene.sim.api.create(CONFIG_MAPS, body | ({"data": data} if data is not None else {}), "default")
    return scene.sim.api


@pytest.mark.parametrize(
    ("data", "mark", "used"),
    [
        pytest.param({"books.json": BOOKS}, labels.BOOKS, {"a/q": {"cpu": 6.0}}, id="the books"),
        pytest.param({"books.json": BOOKS}, "other", {}, id="a ConfigMap of somebody else's"),
        pytest.param({"books.json": "no JSON"}, labels.BOOKS, {}, id="books that cannot be read"),
        pytest.param(None, labels.BOOKS, {}, id="books without a page"),
    ],
)
def test_use_is_read_from_the_books(data: dict[str, str] | None, mark: str, used: dict[str, dict[str, float]]) -> None:
    assert read_world(cluster(data, mark), VirtualClock(), Catalog()).local_usage == used


def forbid(api: DirectTransport, forbidden: ResourcePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks may not list these."""
    listed = api.list_pages

    def list_pages(resource: Any, *args: Any, **named: Any) -> Any:
        if resource == forbidden:
            raise Forbidden(f"{forbidden} is forbidden: User cannot list it", code=403)
        return listed(resource, *args, **named)

    monkeypatch.setattr(api, "list_pages", list_pages)


def test_who_may_not_read_the_books_sees_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster({"books.json": BOOKS})
    forbid(api, CONFIG_MAPS, monkeypatch)
    assert read_world(api, VirtualClock(), Catalog()).local_usage == {}


def test_the_agent_s_own_books_are_read_by_name_without_a_right_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster(None)
    metadata = {"name": "muster-books", "namespace": "muster-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"books.json": BOOKS}}
    api.create(CONFIG_MAPS, body, "muster-system")
    forbid(api, CONFIG_MAPS, monkeypatch)
    assert read_world(api, VirtualClock(), Catalog()).local_usage == {"a/q": {"cpu": 6.0}}


OPTIONAL = sorted({watched.resource for watched in WATCHED.values() if watched.optional})
NEEDED = sorted({watched.resource for watched in WATCHED.values() if not watched.optional})


@pytest.mark.parametrize("resource", OPTIONAL, ids=str)
def test_an_optional_kind_that_may_not_be_listed_is_none_with_a_warning(
    resource: ResourcePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, warned = cluster(None), list[str]()
    forbid(api, resource, monkeypatch)
    read_world(api, VirtualClock(), Catalog(), warn=warned.append)
    (words,) = warned
    assert words.startswith(f"{resource} may not be listed: add ")
    assert f'{{apiGroups: ["{resource.group}"], resources: [{resource.plural}], verbs: [list]}}' in words


@pytest.mark.parametrize("resource", NEEDED, ids=str)
def test_any_other_kind_that_may_not_be_listed_is_an_error_that_names_the_rule(
    resource: ResourcePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = cluster(None)
    forbid(api, resource, monkeypatch)
    with pytest.raises(Forbidden, match="User cannot list it") as caught:
        read_world(api, VirtualClock(), Catalog())
    assert f"resources: [{resource.plural}], verbs: [list]" in str(caught.value)
