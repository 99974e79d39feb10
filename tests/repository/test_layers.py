"""Arrows point down between the folders of `src` and of the package, and files make no circles.

`use` and `import` lines are read, and paths in code. Imports in functions are no arrows: they are
for names that few need.
"""

import ast
import re

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
    "pools",
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
#: The folders of the package, from the ground up. `""` has what all of them use.
PYTHON = ("", "v02", "sessions", "sandbox", "sandbox/inside", "sandbox/host", "adapters", "tools")


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
        paths += re.findall(r"\bcrate(?:::\w+)+", text)
        for used in paths:
            parts = used.split(" as ")[0].split("::")
            if parts[0] != "crate":
                continue
            for end in range(len(parts), 1, -1):
                target = "/".join(parts[1:end])
                if target in files and not (files[target].name == "mod.rs" and end < len(parts)):
                    found.add(target)
                    break
        arrows[name] = found - {name}
    return arrows


def python():
    """The modules of the package that each module imports, as it is imported itself."""
    package = ROOT / "fastaudit_rs"
    paths = package.rglob("*.py")
    modules = {path.relative_to(package).with_suffix("").as_posix() for path in paths}
    arrows = {}
    for name in modules:
        found = set()
        for node in ast.parse((package / f"{name}.py").read_text()).body:
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            above = name.split("/")[: -node.level]
            base = "/".join([*above, *(node.module or "").split(".")]).strip("/")
            named = {f"{base}/{alias.name}".strip("/") for alias in node.names} | {base}
            found |= named & modules
        arrows[name] = found - {name}
    return arrows


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


#: The modules that are what users start with, and so on top: what they import is imported later.
FACES = {"__init__", "__main__"}


def test_arrows_of_rust_point_down():
    arrows = {name: targets - {"lib"} for name, targets in rust().items() if name != "lib"}
    assert len(arrows) > 100
    assert upwards(arrows, RUST) == set()


def test_files_of_rust_make_no_circles():
    assert circles(rust()) == set()


def test_arrows_of_the_package_point_down():
    arrows = {name: targets for name, targets in python().items() if name not in FACES}
    assert len(arrows) > 40
    assert upwards(arrows, PYTHON) == set()
    assert circles(arrows) == set()


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
