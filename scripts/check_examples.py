"""Hold the examples of the README and the docs to the types, as mypy and pyright see them."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ("index", "hosts", "compatibility", "policy", "recording", "sandbox", "pytest")
PAGES = [ROOT / name for name in ("README.md", *(f"docs/{page}.md" for page in DOCS))]


def main() -> None:
    """Write each example to a file and check them all."""
    with tempfile.TemporaryDirectory() as directory:
        text = "\n".join(page.read_text() for page in PAGES)
        examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        for number, example in enumerate(examples):
            Path(directory, f"example_{number}.py").write_text(example)
        files = sorted(map(str, Path(directory).glob("*.py")))
        python = [sys.executable, "-m"]
        files += map(str, sorted(ROOT.glob("docs/**/*.py")))
        subprocess.run([*python, "mypy", "--strict", *files], check=True)
        subprocess.run([*python, "pyright", "--pythonpath", sys.executable, *files], check=True)


if __name__ == "__main__":
    main()
