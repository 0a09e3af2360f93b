"""Which modules, classes and functions of the product a command can reach, by reading the sources.

Modules: every import counts, wherever in a module it stands. Definitions: what the code of a module does when it is
imported is live, and so is what a live definition names. A method is live when live code mentions its name on anything
at all; types are not followed, so that some that are dead pass for live, and none that is live for dead.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "fleet", "model", "providers")
Key = tuple[str, str]
"""Module and name; `Class.method` for a method."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HOOKLESS = frozenset(
    ("BaseModel", "Enum", "Exception", "Generic", "NamedTuple", "Protocol", "StrEnum", "Struct", "ValueError")
)
"""Bases from elsewhere that call no method of ours by name."""
_PLAIN = frozenset(
    (
        "abstractmethod",
        "cache",
        "cached_property",
        "classmethod",
        "contextmanager",
        "dataclass",
        "derived",
        "derived_each",
        "final",
        "property",
        "remembered",
        "remembered_each",
        "runtime_checkable",
        "setter",
        "staticmethod",
        "total_ordering",
    )
)
"""Decorators that hand what they decorate to nobody; any other may register it (commands, validators, routes)."""


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the product."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(modules()[module].read_text("utf-8"))


def imports(module: str) -> frozenset[str]:
    """The modules of the product that `module` imports anywhere, and those whose package data it opens."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found & modules().keys() - {module})


def reached(roots: Iterable[str]) -> frozenset[str]:
    """The modules that an import of `roots` may bring in, packages above them included."""
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            above = module.rpartition(".")[0]
            waiting += [*imports(module), *([above] if above in modules() else [])]
    return frozenset(seen)


@cache
def dead(outside: frozenset[Key]) -> tuple[Key, ...]:
    """Definitions that nothing live names, sorted, where those `outside` count as called from elsewhere."""
    return tuple(_Liveness(outside).dead())


@dataclass
class _Liveness:
    outside: frozenset[Key]
    live: set[Key] = field(default_factory=set)
    _mentioned: set[str] = field(default_factory=set)
    _waiting: list[Key] = field(default_factory=list)

    def dead(self) -> list[Key]:
        """All but what is live; methods of dead classes go without saying."""
        for module in modules():
            self._import(module)
        for key in self.outside & definitions().keys():
            self._use(key)
        while self._waiting:
            while self._waiting:
                self._call(self._waiting.pop())
            for key in definitions():
                cls, _, method = key[1].partition(".")
                if method in self._mentioned and (key[0], cls) in self.live:
                    self._use(key)
        rest = definitions().keys() - self.live
        return sorted(key for key in rest if "." not in key[1] or (key[0], key[1].partition(".")[0]) in self.live)

    def _use(self, key: Key) -> None:
        if key not in self.live:
            self.live.add(key)
            self._waiting.append(key)

    def _import(self, module: str) -> None:
        """What runs when the module is imported: all but the bodies of its definitions, and no `__all__`."""
        for node in tree_of(module).body:
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                self._scan(module, node.decorator_list)
                if _is_special(node.name) or _is_registered(node):
                    self._use((module, node.name))
            elif not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"):
                self._scan(module, [node])

    def _call(self, key: Key) -> None:
        module, _ = key
        node = definitions()[key]
        if not isinstance(node, ast.ClassDef):
            self._scan(module, [node])
            return
        self._scan(module, [*node.bases, *node.keywords, *node.decorator_list])
        hooked = _has_hooks(module, node)
        for item in node.body:
            if isinstance(item, _FUNCTIONS):
                if hooked or _is_special(item.name) or _is_registered(item):
                    self._use((module, f"{node.name}.{item.name}"))
            else:
                self._scan(module, [item])
                for name in (inner.id for inner in ast.walk(item) if isinstance(inner, ast.Name)):
                    if (method := (module, f"{node.name}.{name}")) in definitions():
                        self._use(method)

    def _scan(self, module: str, nodes: Iterable[ast.AST]) -> None:
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            if isinstance(node, ast.Name):
                self._name(module, node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                self._mentioned.add(node.value)  # getattr, or a forward reference
                self._name(module, node.value)
            elif isinstance(node, ast.Attribute):
                self._mentioned.add(node.attr)
                if isinstance(node.value, ast.Name):
                    for target in _modules_named(module, node.value.id):
                        self._name(target, node.attr)
            waiting += ast.iter_child_nodes(node)

    def _name(self, module: str, name: str) -> None:
        for key in resolve(module, name):
            self._use(key)


@cache
def definitions() -> Mapping[Key, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Every function and class at the top of a module, and every method."""
    found: dict[Key, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = {}
    for module in modules():
        for node in tree_of(module).body:
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                found[module, node.name] = node
            for item in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(item, _FUNCTIONS):
                    found[module, f"{node.name}.{item.name}"] = item
    return found


@cache
def _imported(module: str) -> Mapping[str, frozenset[Key]]:
    """Local name -> what it may be imported from; ("package.module", "") for a module itself."""
    names: dict[str, set[Key]] = {}
    for node in ast.walk(tree_of(module)):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            local = names.setdefault(alias.asname or alias.name.partition(".")[0], set())
            if isinstance(node, ast.ImportFrom) and node.module:
                local.add((node.module, alias.name))
            whole = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            if whole in modules():
                local.add((whole, ""))
    return {name: frozenset(keys) for name, keys in names.items()}


def resolve(module: str, name: str, seen: frozenset[Key] = frozenset()) -> Iterator[Key]:
    """The definitions that `name` may mean in `module`, through imports and re-exports."""
    if (module, name) in definitions():
        yield module, name
    if module in modules() and (module, name) not in seen:
        for origin, original in _imported(module).get(name, ()):
            if original:
                yield from resolve(origin, original, seen | {(module, name)})


def _modules_named(module: str, name: str) -> Iterator[str]:
    return (origin for origin, original in _imported(module).get(name, ()) if not original)


def _has_hooks(module: str, node: ast.ClassDef) -> bool:
    """Whether a base from elsewhere may call its methods."""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    for base in bases:
        ours = list(resolve(module, base.id)) if isinstance(base, ast.Name) else []
        written = ast.unparse(base)
        if not ours and (written == "asyncio.Protocol" or written.rpartition(".")[2] not in _HOOKLESS):
            return True
        parents = ((key[0], definitions()[key]) for key in ours)
        if any(isinstance(parent, ast.ClassDef) and _has_hooks(where, parent) for where, parent in parents):
            return True
    return False


def _is_registered(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    calls = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
    return any(ast.unparse(call).rpartition(".")[2] not in _PLAIN for call in calls)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
