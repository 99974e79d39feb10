"""Runs the snippets of ordinary code under each guard, and says what became of them.

A snippet is a table in one of the TOML files beside this: a program of a few lines as a language
model writes it, which checks its own results. Its fields:

- `name`, and `code`, which runs in an empty work directory; `URL` is a server on this machine.
- `packages`: the modules it needs that are not in the standard library.
- `timed = false`: its CPU time says nothing, because most of it passes elsewhere.
- `timeout`: its seconds, if more than `TIMEOUT`.
- `optional`: it may be missing where the others are, because of its size.

Each runs in a process of its own (`snippet_worker.py`), with its imports made before the guard or
inside it.
"""

import concurrent.futures
import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORKER = HERE / "snippet_worker.py"
CACHE = ROOT / ".cache" / "ordinary"
TIMEOUT = 60

BARE = "bare"
ORIGINALS = {"0.1.0": "fastaudit==0.1.0", "0.2.10": "fastaudit==0.2.10"}
#: The guards that must let every snippet pass.
NOTEBOOK, DATA = "preset notebook", "packages=data"
OURS = ["mk_audit", "v02.mk_audit", DATA, "preset workspace", NOTEBOOK]
GUARDS = [*ORIGINALS, *OURS]
WHENS = ["before", "inside"]
#: Verdicts with which a snippet did what it is for.
PASSED = ("pass", "pass*")


def load():
    """All snippets, each with its topic."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before 3.11
        import tomli as tomllib
    return [
        {"topic": file.stem, **snippet}
        for file in sorted(HERE.glob("*.toml"))
        for snippet in tomllib.loads(file.read_text(encoding="utf-8"))["snippet"]
    ]


def original(release, python):
    """Where a release of the original is, for an interpreter; installed if it is not there yet."""
    version = subprocess.check_output(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    ).strip()
    place = CACHE / version / release
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(dir=place.parent)
        install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*install, "--target", made, ORIGINALS[release]], check=True)
        os.rename(made, place)
    return str(place)


class Handler(http.server.BaseHTTPRequestHandler):
    """The server that the snippets of `network.toml` talk to."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = {"method": self.command, "path": self.path, "body": body.decode()}
        text = b"x" * 100_000 if self.path == "/big" else json.dumps(said).encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *args):
        """Say nothing."""


@contextlib.contextmanager
def setting(python=sys.executable, guards=()):
    """A server, a home directory and the originals that these guards need, for many runs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            yield {
                "python": str(python),
                "url": f"http://127.0.0.1:{server.server_port}",
                "home": home,
                "originals": {
                    guard: original(guard, python) for guard in guards if guard in ORIGINALS
                },
            }
    finally:
        server.shutdown()
        server.server_close()


def run(snippet, guard, when, place):
    """The outcome of a snippet under a guard: its verdict, and a message about it."""
    base = os.path.realpath(tempfile.mkdtemp())
    try:
        return judge(*observe(snippet, guard, when, place, base))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def request_of(snippet, guard, when, place, **more):
    """The request for the worker."""
    return {
        "snippet": snippet,
        "guard": guard,
        "when": when,
        "url": place["url"],
        "original": place["originals"].get(guard),
        **more,
    }


def start(program, request, place, base, **options):
    """Start a worker in an empty work directory that is not its temporary one."""
    work, temporary = os.path.join(base, "work"), os.path.join(base, "tmp")
    os.makedirs(work, exist_ok=True)
    os.makedirs(temporary, exist_ok=True)
    return subprocess.Popen(
        [place["python"], str(program), json.dumps(request)],
        cwd=work,
        env={**os.environ, "HOME": place["home"], "TMPDIR": temporary, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        **options,
    )


def observe(snippet, guard, when, place, base):
    """Run it, and return what it reported, how it ended and what it printed."""
    report = os.path.join(base, "report")
    request = request_of(snippet, guard, when, place, report=report)
    # A child that lives on would keep a pipe open.
    with open(os.path.join(base, "output"), "w+", errors="replace") as output:
        process = start(WORKER, request, place, base, stdout=output, stderr=subprocess.STDOUT)
        try:
            ended = process.wait(snippet.get("timeout", TIMEOUT))
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            # The session is this worker's own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        said = output.read()
    found = Path(report)
    return (json.loads(found.read_text()) if found.exists() else None), ended, said


def judge(report, ended, output):
    """The verdict, and what is to be said about it."""
    if report and "missing" in report:
        return "missing", report["missing"]
    denials = report["denials"] if report else []
    first = denials[0] if denials else ""
    if ended is None:
        return "hang", first or last_line(output)
    if ended < 0:
        return "crash", signal.Signals(-ended).name
    if report is None:
        return "error", last_line(output)
    if report["raised"] is not None:
        return ("denied", first) if denials else ("error", report["raised"])
    if ended:
        return "error", last_line(output)
    return ("pass*", first) if denials else ("pass", "")


def last_line(text):
    """The last line of an output."""
    return (text.strip().splitlines() or [""])[-1][:200]


def results(snippets, guards, whens, place, jobs=2, progress=None):
    """The outcome of each snippet under each guard, `{(name, guard, when): (verdict, said)}`.

    The bare ones run first: they warm what is kept in the home directory.
    """
    found = {}
    kinds = [(guard, when) for guard in guards if guard != BARE for when in whens]
    for stage in ([(BARE, "inside")] if BARE in guards else [], kinds):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            tasks = {
                pool.submit(run, snippet, guard, when, place): (snippet["name"], guard, when)
                for snippet in snippets
                for guard, when in stage
            }
            for task in concurrent.futures.as_completed(tasks):
                found[tasks[task]] = task.result()
                if progress:
                    progress(*tasks[task], *task.result())
    return found


def went_wrong(snippet, guard, verdict, said):
    """The message about a snippet that did not go as it must; `None` if it did."""
    text = f"{snippet['name']}: {guard}: {verdict} {said}".strip()
    if verdict == "missing" and snippet.get("optional") and said.startswith("no module"):
        return None
    if guard in (BARE, DATA, NOTEBOOK) and verdict not in PASSED:
        return text
    return None
