"""Hold the README's Python examples to the types, as `mypy --strict` and `pyright` see them."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def main() -> None:
    """Write each example to a file and check them all."""
    with tempfile.TemporaryDirectory() as directory:
        examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        for number, example in enumerate(examples):
            Path(directory, f"example_{number}.py").write_text(example)
        files = sorted(map(str, Path(directory).glob("*.py")))
        python = [sys.executable, "-m"]
        subprocess.run([*python, "mypy", "--strict", *files], check=True)
        subprocess.run([*python, "pyright", "--pythonpath", sys.executable, *files], check=True)


if __name__ == "__main__":
    main()
