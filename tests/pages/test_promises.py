"""The table in docs/assurance.md of what a sandbox promises, and the tests behind it."""

import ast
import re

import promises
from repository import ROOT, TESTS

RINGS = ("guard", "kernel", "host", "container")


def of_the_tests():
    """The promises and rings that tests of the sandbox name."""
    found = set()
    for path in TESTS.joinpath("sandbox").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.holds":
                ring, promise = node.args
                found.add((getattr(promises, promise.attr), ring.value))
    return found


def of_the_page():
    """The promises and rings of the table."""
    text = ROOT.joinpath("docs", "assurance.md").read_text()
    table = re.search(r"<!-- promises: begin -->\n(.*?)<!-- promises: end -->", text, re.DOTALL)
    found = set()
    for line in table[1].splitlines()[2:]:
        promise, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found |= {(promise, ring) for ring, cell in zip(RINGS, cells, strict=True) if cell}
    return found


def test_the_table_is_that_of_the_tests():
    assert of_the_page() == of_the_tests(), "run `make promises-page`"


def test_rings():
    assert {ring for _, ring in of_the_tests()} <= set(RINGS)


def test_nothing_in_the_table_is_broken():
    assert "not held" not in ROOT.joinpath("docs", "assurance.md").read_text()
