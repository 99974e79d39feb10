"""Run the tutorial, a notebook, and write what its cells give into it.

    python scripts/tutorial.py

`run()` is what the test uses to compare what it gives now with what it shows.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tutorial.ipynb"

#: The name in the notebook of the directory that it runs in.
SHOWN = "/home/ada/notes"


def run(directory: str) -> Any:
    """The notebook, run in a directory.

    Args:
        directory: A directory that is empty, resolved.
    """
    notebook = nbformat.read(PAGE, as_version=4)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": directory}}
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            _rename(output, directory)
    notebook.metadata.pop("language_info", None)
    return notebook


def _rename(output: Any, directory: str) -> None:
    """Say `SHOWN` for the directory, in all that an output has."""
    for key, value in output.items():
        if isinstance(value, str):
            output[key] = value.replace(directory, SHOWN)
        elif isinstance(value, list):
            output[key] = [line.replace(directory, SHOWN) for line in value]
        elif key == "data":
            _rename(value, directory)


def told(notebook: Any) -> list[list[tuple[str, str]]]:
    """The outputs of each cell: kinds and texts, without colours, pictures by their kind."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cells.append([_told(output) for output in cell.outputs])
    return cells


def _told(output: Any) -> tuple[str, str]:
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return output.ename, re.sub(r"\x1b\[\d*m", "", "\n".join(output.traceback))
    kinds = sorted(output.data)
    if "image/png" in kinds:
        return "image/png", ""
    return kinds[0], output.data[kinds[0]]


def main() -> None:
    """Run it and write it."""
    with tempfile.TemporaryDirectory() as directory:
        notebook = run(os.path.realpath(directory))
    nbformat.write(notebook, PAGE)


if __name__ == "__main__":
    main()
