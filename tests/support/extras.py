"""Packages of extras that are not installed: tests that need one are skipped."""

import importlib.util
import os
import re

from repository import ROOT

_SECTION = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
#: The distributions that some extra installs.
_NAMED = {name.lower() for name in re.findall(r'"([\w.-]+)', _SECTION.split("\n[tool.")[0])}
#: Where nothing may be left out for want of a package.
_ALL = bool(os.environ.get("FASTAUDIT_RS_ALL_TESTS"))


def _is_missing(module: str) -> bool:
    name = module.lower().replace("_", "-")
    of_an_extra = any(name in distribution for distribution in _NAMED)
    return of_an_extra and importlib.util.find_spec(module) is None


def missing(text: str) -> str | None:
    """The package for want of which a test failed with this text; `None` if that is not why."""
    found = re.findall(r"ModuleNotFoundError: No module named '(\w+)", text)
    return next((module for module in found if not _ALL and _is_missing(module)), None)
