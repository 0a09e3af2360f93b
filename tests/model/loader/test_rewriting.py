"""One alias is changed where it stands, byte by byte; whatever would be more is refused."""

import pytest

from model.kinds import MigLayout
from model.loader import NotRewritable, PoolLayouts, load, with_layouts, with_value

OLD, NEW = "al2023@v20250505", "al2023@v20251112"
AT = ("spec", "template", "amis", 0, "alias")


def pool(name: str, alias: str = OLD, more: str = "") -> str:
    return (
        f"apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n"
        f"  instanceTypes: [p5.48xlarge]  # large\n  template:\n    images: ProposeChange\n"
        f"    amis: [{{alias: {alias}}}]{more}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(pool("a"), id="plain"),
        pytest.param(pool("a", f'"{OLD}"'), id="in quotes"),
        pytest.param(pool("a", f"'{OLD}'", "  # reviewed in March"), id="before a comment"),
        pytest.param(pool("a").replace("[{alias: ", "\n      - alias: ").replace("}]", ""), id="in a block"),
        pytest.param("\ufeff" + pool("a"), id="after a byte order mark"),
        pytest.param(pool("a").replace("\n", "\r\n"), id="with the line ends of another system"),
        pytest.param(pool("b") + "---\n" + pool("a"), id="the second of two alike"),
        pytest.param("# ü 🙂\n" + pool("a", more="  # 🙂"), id="among signs of several bytes"),
    ],
)
def test_nothing_else_of_the_file_changes(text: str) -> None:
    files = {"x/pools.yaml": text.encode(), "y.yaml": pool("other").encode()}
    path, changed = with_value(files, "a", AT, NEW)
    place = text.rindex(OLD)
    assert (path, changed.decode()) == ("x/pools.yaml", text[:place] + NEW + text[place + len(OLD) :])
    after = load({**files, path: changed}).node_pools
    assert {
        name: it.spec.template.amis[0].alias for name, it in after.items() if it.spec.template.amis[0].alias == NEW
    } == {"a": NEW}


def test_a_patch_is_changed_where_it_stands() -> None:
    head = "apiVersion: muster.dev/v1alpha1\nkind: {}\nmetadata: {{name: {}}}\n"
    files = {
        "base/pools.yaml": pool("a", "al2023@v20240101").encode(),
        "clusters/c/cluster.yaml": (
            head.format("Cluster", "c") + "spec: {bases: [../../base], patches: [p.yaml]}\n"
        ).encode(),
        "clusters/c/p.yaml": (
            head.format("NodePool", "a") + f"spec: {{template: {{amis: [{{alias: {OLD}}}]}}}}\n"
        ).encode(),
    }
    path, changed = with_value(files, "a", AT, NEW, cluster="c")
    assert path == "clusters/c/p.yaml"
    assert load({**files, path: changed}, cluster="c").node_pools["a"].spec.template.amis[0].alias == NEW


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(pool("b"), "cannot be read", id="no such pool"),
        pytest.param(pool("a", "nonsense"), "cannot be read", id="invalid"),
        pytest.param(pool("a", f"&it {OLD}"), "not written as such", id="with an anchor"),
        pytest.param(pool("a", f"!!str {OLD}"), "cannot be read", id="with a tag"),
        pytest.param(
            pool("a").replace("amis: [{alias: ", "amis: &shared [{alias: ").replace("---", "")
            .replace("  template:", "  template:")
            + "    tags: {}\n",
            "", id="an anchor around it is none of its own",
        ),
        pytest.param(pool("a", r'"al2023@v2025\x30505"'), "not written as such", id="with an escape"),
    ],
)  # fmt: skip
def test_what_is_not_written_as_such_is_for_people(text: str, words: str) -> None:
    files = {"pools.yaml": text.encode()}
    if not words:
        assert NEW.encode() in with_value(files, "a", AT, NEW)[1]
        return
    with pytest.raises(NotRewritable, match=words):
        with_value(files, "a", AT, NEW)


# -- the layouts of a pool --------------------------------------------------------------------------------------------

LAYOUT = (
    "apiVersion: muster.dev/v1alpha1\nkind: MigLayout\nmetadata: {{name: {}}}\n"
    "spec: {{models: {{a100-80gb: [{{profiles: {{{}}}}}]}}}}\n"
)
OLDER = LAYOUT.format("small", "1g.10gb: 7") + "---\n" + LAYOUT.format("big", "3g.40gb: 2")


def cutting(layouts: str, more: str = "") -> str:
    return (
        "apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {name: a}\nspec:\n"
        f"  instanceTypes: [p4de.24xlarge]\n{more}  sharing:\n    mig:\n      layouts:{layouts}\n"
        "  disruption: {consolidateAfter: 15m}  # patient\n"
    )


def new_layout(name: str = "mixed") -> MigLayout:
    return load({"x.yaml": LAYOUT.format(name, "1g.10gb: 4, 3g.40gb: 1").encode()}).mig_layouts[name]


@pytest.mark.parametrize(
    ("layouts", "after"),
    [
        (" [small, big]", " [mixed, big]"),
        (' [ "small",\n   big ]', " [mixed, big]"),
        ("\n      - small\n      - big", "\n      - mixed\n      - big"),
        ('\n        - small\n        - "big"', "\n        - mixed\n        - big"),
    ],
)
def test_a_pool_gets_other_layouts_and_the_new_one_stands_behind_it(layouts: str, after: str) -> None:
    files = {"x/pools.yaml": cutting(layouts).encode(), "x/layouts.yaml": OLDER.encode()}
    path, changed = with_layouts(files, PoolLayouts("a", ("mixed", "big"), None, (new_layout(),)))
    text = changed.decode()
    assert path == "x/pools.yaml"
    assert text.startswith(cutting(after) + "---\napiVersion")
    found = load({**files, path: changed})
    assert found.node_pools["a"].spec.sharing.mig.layouts == ("mixed", "big")
    assert found.mig_layouts["mixed"] == new_layout()


def test_a_fixed_pool_gets_another_number_of_machines() -> None:
    files = {"x.yaml": (cutting(" [small]", "  replicas: 4\n") + "---\n" + OLDER).encode()}
    path, changed = with_layouts(files, PoolLayouts("a", ("big",), 2, ()))
    assert changed.decode() == files[path].decode().replace("[small]", "[big]").replace("replicas: 4", "replicas: 2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (cutting("\n      - small\n      # then\n      - big"), "comments among the layouts"),
        (pool("a"), "names no layouts"),
        (cutting(" [small").rstrip() + "\n", "cannot be read"),
    ],
)
def test_layouts_that_cannot_be_changed_alone_are_refused(text: str, words: str) -> None:
    files = {"x.yaml": text.encode(), "y.yaml": OLDER.encode()}
    with pytest.raises(NotRewritable, match=words):
        with_layouts(files, PoolLayouts("a", ("big", "small"), None, ()))


def test_a_layout_of_a_name_that_is_taken_is_refused() -> None:
    files = {"x.yaml": cutting(" [small]").encode(), "y.yaml": OLDER.encode()}
    with pytest.raises(NotRewritable, match="declared twice"):
        with_layouts(files, PoolLayouts("a", ("big",), None, (new_layout("big"),)))
