"""The environments that the benchmark measures in: one for each implementation."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYPERFORMANCE = "pyperformance==1.14.0"
MARKUPSAFE = "markupsafe>=3"


def quietly(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; what it printed is shown only when it fails."""
    text = [str(part) for part in command]
    done = subprocess.run(text, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise RuntimeError(f"{' '.join(text)}\n{done.stdout}{done.stderr}")
    return done.stdout


def version_of(python: str) -> str:
    """`3.13`, say."""
    return quietly(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()


def make(python: str, place: Path) -> dict[str, Path]:
    """Make or renew the environments; the interpreter of each implementation."""
    pythons = {}
    for name in ("floor", "0.1.0", "0.2.10", "ours"):
        venv = place / name
        pythons[name] = venv / "bin/python"
        if name == "ours":
            # Anew each time: the sources may have changed.
            quietly("scripts/make-venv", python, venv, "install")
        elif not pythons[name].exists():
            quietly(python, "-m", "venv", venv)
        wanted = [MARKUPSAFE] if name in ("floor", "ours") else [MARKUPSAFE, f"fastaudit=={name}"]
        pip = (pythons[name], "-m", "pip", "--disable-pip-version-check")
        quietly(*pip, "install", "--quiet", *wanted)
    build_floor(pythons["floor"])
    return {"bare": pythons["floor"], "ours 0.2": pythons["ours"], **pythons}


def build_floor(python: Path) -> None:
    """Compile the hook and the monitor that do nothing."""
    show = "import sysconfig as s; print(*map(s.{}, ({!r}, {!r})), sep='\\n')"
    include, place = quietly(
        python, "-c", show.format("get_path", "include", "platlib")
    ).splitlines()
    suffix = quietly(
        python, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    ).strip()
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    flags = ("-O2", "-shared", "-fPIC", f"-I{include}")
    quietly(compiler, *flags, "benches/floor.c", "-o", Path(place) / f"floor{suffix}")


def pyperformance(cache: Path) -> Path:
    """The directory of pyperformance's programs."""
    found = list(cache.glob("pyperformance-*/pyperformance/data-files/benchmarks"))
    if not found:
        cache.mkdir(parents=True, exist_ok=True)
        download = ("download", "--quiet", "--no-deps", "--no-binary", ":all:", PYPERFORMANCE)
        quietly(sys.executable, "-m", "pip", *download, cwd=cache)
        [archive] = cache.glob("pyperformance-*.tar.gz")
        quietly("tar", "xf", archive.name, cwd=cache)
        found = list(cache.glob("pyperformance-*/pyperformance/data-files/benchmarks"))
    return found[0].resolve()
