"""Wheels for tests, in directories that pip takes for an index."""

import zipfile


def wheel(directory, name, version="1.0", needs=(), files=()):
    """Make a wheel of a package with one module, which has the version."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as made:
        made.writestr(f"{name}.py", f"version = {version!r}\n")
        for path, text in files:
            made.writestr(path, text)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        made.writestr(
            f"{info}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {one}" for one in needs)])
        )
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "")
