"""Take the pictures of docs/ in headless Chromium: tutorial, denial, recording, trace, first page.

    python scripts/pictures.py

Look at them afterwards. Needs `chromium` on PATH, and nbconvert.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
#: The picture of the first page is to be looked at alone.
FIRST_PAGE = ROOT / ".cache" / "first-page.png"

#: Cells of a notebook, of which pictures show the last.
DENIAL = [
    "%load_ext fastaudit_rs",
    "%%audit --write out\nimport pandas\n\npandas.read_csv('https://example.org/prices.csv')",
]
RECORDING = [
    "%load_ext fastaudit_rs",
    "%%audit --record\n"
    "import pandas\n\n"
    "frame = pandas.DataFrame({'shop': list('abab'), 'sold': [3, 5, 2, 8]})\n"
    "frame.to_csv('sales.csv', index=False)\n"
    "again = pandas.read_csv('sales.csv')\n"
    "again.groupby('shop').sold.sum().plot.bar(figsize=(4, 2));",
]

#: A program of the kind that is traced.
PROGRAM = """\
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

settings = Path("settings.json")
settings.write_text(json.dumps({"rows": 5}))
rows = json.loads(settings.read_text())["rows"]
Path("report").mkdir()
for row in range(rows):
    with open(f"report/{row}.csv", "w") as file:
        file.write(f"{row},{row * row}\\n")
    time.sleep(0.02)
os.environ["REPORT"] = "done"
with tempfile.TemporaryFile() as scratch:
    scratch.write(b"x")
try:
    socket.create_connection(("127.0.0.1", 9), timeout=1)
except OSError:
    pass
time.sleep(0.03)
subprocess.run(["true"])
time.sleep(0.02)
Path("/tmp/report.done").touch()
"""


def take(page: Path, picture: Path, width: int, height: int) -> None:
    """Take a picture of a page, of that many pixels of CSS."""
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1.5",
            f"--window-size={width},{height}",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def trace(directory: Path) -> Path:
    """The page of a trace."""
    directory.joinpath("report.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "fastaudit_rs", "trace", "--html", "trace.html"]
    options = ["--write", "report", "report.py"]
    subprocess.run([*command, *options], cwd=directory, check=True)
    return directory / "trace.html"


def notebook(directory: Path, name: str, cells: list[str]) -> Path:
    """A notebook with these cells, run, as a page."""
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(directory)}}
    client = NotebookClient(made, kernel_name="python3", resources=resources, allow_errors=True)
    client.execute()
    file = directory / f"{name}.ipynb"
    nbformat.write(made, file)
    return page_of(file, directory)


def page_of(file: Path, directory: Path) -> Path:
    """A notebook as a page."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="lab", exclude_input_prompt=False)
    body, _ = exporter.from_filename(str(file))
    page = directory / f"{file.stem}.html"
    page.write_text(body)
    return page


def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        take(trace(directory), DOCS / "trace.png", 1000, 1170)
        take(page_of(DOCS / "tutorial.ipynb", directory), DOCS / "tutorial.png", 900, 2440)
        take(notebook(directory, "denial", DENIAL), DOCS / "denial.png", 900, 270)
        take(notebook(directory, "recording", RECORDING), DOCS / "recording.png", 900, 860)
    take(ROOT / ".cache" / "site" / "index.html", FIRST_PAGE, 1400, 1000)


if __name__ == "__main__":
    main()
