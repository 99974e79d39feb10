"""The examples of the README and of the docs print what is said there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = ("README.md", "docs/policy.md", "docs/recording.md")
PAGES = {name: (ROOT / name).read_text() for name in NAMES}
EXAMPLE = re.compile(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(*example, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, example in enumerate(EXAMPLE.findall(page))
]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the examples watch calls")
@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_example(code, output, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert result.stderr == ""
    assert result.stdout == output


def test_every_example_is_tested():
    assert len(EXAMPLES) == sum(page.count("```python") for page in PAGES.values()) == 28
