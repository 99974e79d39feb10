"""Tables of tests, which are TOML."""

from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # before 3.11
    import tomli as tomllib


def load(path: Path) -> dict[str, Any]:
    """The table in a file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
