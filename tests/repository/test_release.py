"""What a release is made of: links, versions, and the check before an upload."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]


def links():
    command = [ROOT / "scripts/project-urls", "https://example.org/owner/name"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check(place, *tag):
    command = [sys.executable, ROOT / "scripts/check_release.py", place, *tag]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def wheel(tmp_path):
    """Makes a wheel with these lines of metadata."""

    def make(*metadata, sbom=True, version=VERSION, tag="cp313-cp313-manylinux_2_17_x86_64"):
        with zipfile.ZipFile(tmp_path / f"fastaudit_rs-{version}-{tag}.whl", "w") as file:
            info = f"fastaudit_rs-{version}.dist-info"
            lines = ["Metadata-Version: 2.4", f"Version: {version}", *metadata]
            file.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
            if sbom:
                file.writestr(f"{info}/sboms/fastaudit-rs.cyclonedx.json", "{}")
        return tmp_path

    return make


def whole():
    urls = tomllib.loads(links())["project"]["urls"]
    return ["License-Expression: Apache-2.0", *(f"Project-URL: {k}, {v}" for k, v in urls.items())]


def test_links_can_be_added_to_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text() + links())["project"]
    assert project["name"] == "fastaudit-rs"
    assert project["urls"]["Repository"] == "https://example.org/owner/name"


def test_linked_files_are_there():
    for path in re.findall(r"/(?:blob|tree)/main/([^\"]+)", links()):
        assert (ROOT / path).exists()


def test_the_citation_names_the_version():
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()


def test_a_whole_wheel_passes(wheel):
    done = check(wheel(*whole()))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sbom": False}, "no SBOM"),
        ({"version": "0.0.1"}, "its version is 0.0.1"),
    ],
)
def test_a_wheel_that_lacks_something(wheel, change, said):
    done = check(wheel(*whole(), **change))
    assert done.returncode == 1 and said in done.stderr


def test_a_wheel_without_links_and_license(wheel):
    done = check(wheel())
    assert done.returncode == 1
    assert "no link for Changelog, Documentation" in done.stderr and "no license" in done.stderr


def test_a_release_has_each_wheel(wheel):
    done = check(wheel(*whole()), "v9.9.9")
    assert done.returncode == 1
    assert f"the tag is v9.9.9, and the version of Cargo.toml {VERSION}" in done.stderr
    assert "no wheel for cp313 on manylinux_aarch64" in done.stderr
    assert "no wheel for cp313 on manylinux_x86_64" not in done.stderr
    assert "no source distribution" in done.stderr
