"""The README's examples print what it says they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", README, re.DOTALL)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the examples watch calls")
@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_example(code, output, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert result.stderr == ""
    assert result.stdout == output


def test_every_example_is_tested():
    assert len(EXAMPLES) == README.count("```python") == 3
