"""Check what would be uploaded to PyPI, and fail where a stranger would miss something.

    check_release.py dist            what is there: its names, links, license and SBOM
    check_release.py dist v0.1.0     the same, its version, and a wheel for each Python and platform

It needs the standard library alone. `twine check --strict` checks how PyPI shows the description.
"""

import re
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ["cp310", "cp311", "cp312", "cp313", "cp314", "cp314t", "cp315", "cp315t"]
PLATFORMS = [
    f"{libc}_{machine}" for libc in ("manylinux", "musllinux") for machine in ("x86_64", "aarch64")
]
LINKS = {"Documentation", "Repository", "Issues", "Changelog", "Security"}


def metadata_of(path: Path) -> tuple[bytes, list[str]]:
    """The metadata of a distribution, and the names of its files."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            [name] = [name for name in names if name.endswith(".dist-info/METADATA")]
            return wheel.read(name), names
    with tarfile.open(path) as archive:
        names = archive.getnames()
        [name] = [name for name in names if re.fullmatch(r"[^/]+/PKG-INFO", name)]
        file = archive.extractfile(name)
        assert file
        return file.read(), names


def missed(path: Path, version: str) -> list[str]:
    """What a distribution lacks."""
    raw, names = metadata_of(path)
    metadata = message_from_bytes(raw)
    links = {link.split(",")[0] for link in metadata.get_all("Project-URL", [])}
    found = []
    if metadata["Version"] != version:
        found.append(f"its version is {metadata['Version']}, not {version}")
    if LINKS - links:
        found.append(f"no link for {', '.join(sorted(LINKS - links))}: see scripts/project-urls")
    if not metadata["License-Expression"]:
        found.append("no license")
    sbom = re.compile(r"\.dist-info/sboms/.+\.json$")
    if path.suffix == ".whl" and not any(map(sbom.search, names)):
        found.append("no SBOM (PEP 770)")
    return found


def absent(files: list[Path]) -> list[str]:
    """The wheels that a release has and these are not, and the source distribution."""
    names = [file.name for file in files]
    found = []
    for python in PYTHONS:
        for platform in PLATFORMS:
            libc, machine = platform.split("_", 1)
            tags = f"{python.rstrip('t')}-{python}-{libc}"
            wanted = re.compile(rf"-{tags}_[\d_]+_{machine}\b.*\.whl$")
            if not any(map(wanted.search, names)):
                found.append(f"no wheel for {python} on {platform}")
    if not any(name.endswith(".tar.gz") for name in names):
        found.append("no source distribution")
    return found


def main(place: str, tag: str | None = None) -> int:
    """Print what is wrong, a line each."""
    ends = (".whl", ".tar.gz")
    files = sorted(path for path in Path(place).iterdir() if path.name.endswith(ends))
    [version] = re.findall(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    wrong = [f"{file.name}: {what}" for file in files for what in missed(file, version)]
    if not files:
        wrong.append(f"{place} has no distributions")
    if tag is not None:
        if tag != f"v{version}":
            wrong.append(f"the tag is {tag}, and the version of Cargo.toml {version}")
        dated = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
        if not re.search(dated, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
            wrong.append(f"CHANGELOG.md has no '## {version} (YYYY-MM-DD)'")
        wrong += absent(files)
    for line in wrong:
        print(f"check_release: {line}", file=sys.stderr)
    if not wrong:
        print(f"{len(files)} distributions of {version} can be uploaded")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
