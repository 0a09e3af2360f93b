"""One alias is changed where it stands, byte by byte; whatever would be more is refused."""

import pytest

from model.loader import NotRewritable, load, with_value

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
