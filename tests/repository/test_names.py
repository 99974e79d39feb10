"""Names of types: one has one meaning, in all of `src` and in all of the package."""

import ast
import re
from collections import defaultdict

from repository import ROOT

PUBLIC = re.compile(r"^ {0,4}pub(?:\([^)]*\))? (?:struct|enum|trait|union) (\w+)", re.MULTILINE)


def several(found):
    """The names that more than one file has."""
    files = defaultdict(set)
    for name, file in found:
        files[name].add(str(file.relative_to(ROOT)))
    return {name: sorted(of) for name, of in files.items() if len(of) > 1}


def test_public_types_of_rust_have_names_of_their_own():
    paths = (ROOT / "src").rglob("*.rs")
    found = [(name, path) for path in paths for name in PUBLIC.findall(path.read_text())]
    assert len(found) > 200
    assert several(found) == {}


def test_public_classes_of_the_package_have_names_of_their_own():
    found = [
        (node.name, path)
        for path in (ROOT / "fastaudit_rs").rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(found) > 100
    assert several(found) == {}
