"""The package itself, as it is imported."""

import subprocess
import sys

#: What only extras bring.
EXTRAS = ("IPython", "cloudpickle", "distributed", "docker", "pytest", "rich", "sandlock", "shtab")


def test_all_names_are_there_without_extras():
    code = f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})
from fastaudit_rs import *
import fastaudit_rs
print({{*fastaudit_rs.__all__}} - {{*dir()}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
