"""Take the pictures of docs/ in headless Chromium: of the tutorial, and of a trace.

    python scripts/pictures.py

Look at them afterwards. Needs `chromium` on PATH, and nbconvert.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"

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


def tutorial(directory: Path) -> Path:
    """The tutorial as a page."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="lab", exclude_input_prompt=False)
    body, _ = exporter.from_filename(str(DOCS / "tutorial.ipynb"))
    page = directory / "tutorial.html"
    page.write_text(body)
    return page


def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        take(trace(directory), DOCS / "trace.png", 1000, 800)
        take(tutorial(directory), DOCS / "tutorial.png", 900, 2320)


if __name__ == "__main__":
    main()
