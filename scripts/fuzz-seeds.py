"""Write what fuzzing starts from, made of `tests/decisions`, to a directory for each target.

    fuzz-seeds.py DIRECTORY

Policies go to `policy_text`, each text of the rows to `containment` and `events`, which read any
bytes, and to `statements` SQL that opens a database of that name.
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parent.parent


def texts(value: Any) -> Iterator[str]:
    """The texts in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def main(directory: Path) -> None:
    """Write the inputs below the directory."""
    policies, words = set(), set()
    for path in sorted((ROOT / "tests/decisions").glob("*.toml")):
        for policy in tomllib.loads(path.read_text()).get("policy", []):
            policies.update(texts(policy.get("toml")))
            words.update(texts([row[:2] for row in policy["rows"]]))
    forms = ("attach '{}' as a", "vacuum into '{}'")
    statements = {form.format(word) for word in words for form in forms}
    targets = {
        "containment": words,
        "events": words,
        "policy_text": policies,
        "statements": statements,
    }
    for target, inputs in targets.items():
        (directory / target).mkdir(parents=True, exist_ok=True)
        for text in inputs:
            name = hashlib.sha1(text.encode()).hexdigest()
            (directory / target / name).write_bytes(text.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
