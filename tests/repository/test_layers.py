"""Arrows point down between the folders of `src` and of the package, and files make no circles.

`use` lines are read, and paths in code; of the package all imports, also those in functions and
for types: what is imported later is below, too.
"""

import ast
import re
from importlib.util import resolve_name

import pytest
from repository import ROOT

#: The folders of the binding, from the ground up.
BINDING = (
    "cpython",
    "frames",
    "importing",
    "values",
    "callees",
    "logs",
    "configuration",
    "guard",
    "denials",
    "calls",
    "wrapped",
    "excuses",
    "events",
    "acts",
    "api",
)
#: The wings of `src`, from the ground up, with those of the binding at the top.
RUST = ("policy", "kernel", "native", *(f"python/{folder}" for folder in BINDING), "python")
#: The folders of the package, and single modules, from the ground up. `""` is the package's own.
PYTHON = (
    "calls",
    "v02",
    "",
    "sessions",
    "sandbox",
    "sandbox/inside",
    "sandbox/host/copies",
    "sandbox/host/network",
    "sandbox/host/egress",
    "sandbox/host",
    "adapters",
    "ray",
    "tools",
)
#: The modules that users start with, on top of all: they have names of the others.
FACES = ("__init__", "__main__", "sandbox/__init__")
#: The name of a module of the package.
MODULE = re.compile(r"fastaudit_rs(\.\w+)+")


def leaves(tree: str):
    """The paths of a `use`, without its braces: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    opened = re.match(r"((?:\w+::)*)\{(.*)\}$", tree, re.DOTALL)
    if opened is None:
        yield tree
        return
    depth, part = 0, ""
    for character in opened[2] + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            if part.strip():
                yield from (opened[1] + leaf for leaf in leaves(part.strip()))
            part = ""
        else:
            part += character


def rust():
    """The files of `src` that each file uses."""
    files = {}
    for path in (ROOT / "src").rglob("*.rs"):
        name = path.relative_to(ROOT / "src").with_suffix("").as_posix()
        files[name.removesuffix("/mod")] = path
    arrows = {}
    for name, path in files.items():
        text = re.sub(r"//[^\n]*", "", path.read_text())
        # Unit tests at the end of a file may use anything.
        text = text.partition("#[cfg(test)]\nmod tests")[0]
        found = set()
        uses = re.findall(r"\buse\s+([\w:]*(?:\{[^;]*\}|\w+|\*)(?:\s+as\s+\w+)?)\s*;", text)
        paths = [leaf for use in uses for leaf in leaves(use)]
        paths += re.findall(r"\b(?:crate|super)(?:::\w+)+", text)
        for used in paths:
            parts = used.split(" as ")[0].split("::")
            if parts[0] == "super" and parts[1] != "super":
                parts = ["crate", *name.split("/")[:-1], *parts[1:]]
            if parts[0] != "crate":
                continue
            for end in range(len(parts), 1, -1):
                target = "/".join(parts[1:end])
                if target in files and not (files[target].name == "mod.rs" and end < len(parts)):
                    found.add(target)
                    break
        arrows[name] = found - {name}
    return arrows


def imported(module, tree):
    """The full names of what a module of the package imports, wherever in it, for types too.

    Names of modules in tables and calls count, and the imports of programs for other processes.
    """
    package = ".".join(["fastaudit_rs", *module.split("/")[:-1]])
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom():
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{base}.{alias.name}" for alias in node.names)
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.Assign(targets=[ast.Name(id="_LATER")]):
                for name, base in ast.literal_eval(node.value).items():
                    yield resolve_name(f".{base}".replace("...", ".."), package) + f".{name}"
            case ast.Tuple(elts=parts) | ast.Call(args=parts):
                texts = [part.value for part in parts if isinstance(part, ast.Constant)]
                yield from (text for text in map(str, texts) if MODULE.fullmatch(text))
            case ast.Constant(value=str(text)):
                yield from re.findall(r"^from (fastaudit_rs[\w.]*) import", text, re.MULTILINE)


def python():
    """The modules of the package that each module imports, if by way of a face."""
    package = ROOT / "fastaudit_rs"
    used = {}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).with_suffix("").as_posix()
        used[name] = [*imported(name, ast.parse(path.read_text()))]
    offered = {face: {full.rpartition(".")[2]: full for full in used[face]} for face in FACES}

    def module(full):
        top, *path = full.split(".")
        for end in (len(path), len(path) - 1) if top == "fastaudit_rs" else ():
            name = "/".join(path[:end])
            if name in used:
                return name
            face = f"{name}/__init__".strip("/")
            if face in used:
                origin = offered.get(face, {}).get(full.rpartition(".")[2], full)
                return face if origin == full else module(origin)
        return None

    return {
        name: {module(full) for full in fulls} & used.keys() - {name}
        for name, fulls in used.items()
    }


def circles(arrows):
    """The files that lead back to themselves, by circle."""
    reached = {}
    for start in arrows:
        seen, rest = set(), list(arrows[start])
        while rest:
            at = rest.pop()
            if at not in seen:
                seen.add(at)
                rest += arrows.get(at, ())
        reached[start] = seen
    return {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in arrows
        if name in reached[name]
    }


def upwards(arrows, folders):
    """The arrows from a folder to one above it, as text."""

    def floor(name):
        folder = name if name in folders else name.rpartition("/")[0]
        while folder not in folders:
            folder = folder.rpartition("/")[0]
        return folders.index(folder)

    return {
        f"{name} -> {target}"
        for name, targets in arrows.items()
        for target in targets
        if floor(name) < floor(target)
    }


def test_arrows_of_rust_point_down():
    arrows = {name: targets - {"lib"} for name, targets in rust().items() if name != "lib"}
    assert len(arrows) > 100
    assert upwards(arrows, RUST) == set()


def test_files_of_rust_make_no_circles():
    assert circles(rust()) == set()


def registries():
    """The statics of `src` that are given functions as the program runs, as no `use` shows."""
    texts = {}
    for path in (ROOT / "src").rglob("*.rs"):
        name = path.relative_to(ROOT / "src").with_suffix("").as_posix()
        texts[name] = re.sub(r"//[^\n]*", "", path.read_text())
    function = r"(?:\bfn|\bFn\w*)\s*\("
    kinds = {
        kind
        for text in texts.values()
        for kind in (
            *re.findall(rf"\btype (\w+)[^;]*{function}", text),
            *re.findall(rf"\bstruct (\w+)[^;{{]*\{{[^}}]*{function}", text),
        )
    }
    holds = re.compile("|".join([function, *(rf"\b{kind}\b" for kind in sorted(kinds))]))
    return {
        f"{file}: {static}"
        for file, text in texts.items()
        for static, of in re.findall(r"\bstatic (\w+): ([^=]+?)\s*=", text)
        if re.match(r"(?:\w+::)*(?:Once|OnceLock|LazyLock|Mutex|RwLock|ArcSwap\w*)<", of)
        and holds.search(of)
    }


def test_no_table_of_functions_hides_an_arrow():
    assert registries() == {
        # The classes of this folder, which are made once the first guard is.
        "python/api/setup: CLASSES",
    }


def test_arrows_of_the_package_point_down():
    arrows = {name: targets for name, targets in python().items() if name not in FACES}
    assert len(arrows) > 40
    assert upwards(arrows, PYTHON) == set()
    assert circles(arrows) == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from .values import pack", {"fastaudit_rs.sessions.values.pack"}),
        ("def f():\n    from .. import Policy", {"fastaudit_rs.Policy"}),
        ("if TYPE_CHECKING:\n    import fastaudit_rs.core", {"fastaudit_rs.core"}),
        ("_LATER = {'Stream': 'base'}", {"fastaudit_rs.sessions.base.Stream"}),
        ("_LATER = {'Act': '..timeline'}", {"fastaudit_rs.timeline.Act"}),
        ("MODULES = ('fastaudit_rs.core',)", {"fastaudit_rs.core"}),
        ("START = 'import os\\nfrom fastaudit_rs.core import f'", {"fastaudit_rs.core"}),
        ("class A:\n    __module__ = 'fastaudit_rs.core'", set()),
    ],
)
def test_imports_anywhere_are_found(code, found):
    assert set(imported("sessions/here", ast.parse(code))) == found


@pytest.mark.parametrize(
    ("tree", "found"),
    [("a::b", ["a::b"]), ("a::{b, c::{d, e}}", ["a::b", "a::c::d", "a::c::e"]), ("a", ["a"])],
)
def test_trees_of_uses(tree, found):
    assert list(leaves(tree)) == found


def test_what_points_up_or_goes_round_is_found():
    arrows = {"low/a": {"high/b"}, "high/b": {"high/c"}, "high/c": {"high/b", "low/a"}}
    assert upwards(arrows, ("low", "high")) == {"low/a -> high/b"}
    assert circles(arrows) == {frozenset({"low/a", "high/b", "high/c"})}
