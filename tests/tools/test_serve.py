"""`fastaudit-rs serve`: a real process, its clients, and who has no business there."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("sandlock")
httpx = pytest.importorskip("httpx")
for module in ("starlette", "uvicorn", "python_multipart"):
    pytest.importorskip(module)

from repository import ROOT  # noqa: E402
from sandboxes import until  # noqa: E402

from fastaudit_rs.tools.cli import main  # noqa: E402

PAGE = (ROOT / "docs" / "shell.md").read_text()
TOKEN = "a token of the pod"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


def end(process):
    """End a server as Ctrl-C does, whatever its clients left behind."""
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(20) in (0, 130, -signal.SIGINT)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Starts servers with options; each gives a client, which sends what it has to."""
    temporary = tmp_path_factory.mktemp("temporary")
    with contextlib.ExitStack() as stack:

        def start(*options, headers=AUTHORIZED):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "fastaudit_rs", "serve", "--http", "0", *options],
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "TMPDIR": str(temporary)},
                )
            )
            stack.callback(end, process)
            line = process.stderr.readline()
            url = re.search(r"http://\S+", line)[0]
            return stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60))

        yield start
    assert os.listdir(temporary) == []


@pytest.fixture(scope="module")
def pod(server, tmp_path_factory):
    """A client of a server with a token."""
    file = tmp_path_factory.mktemp("secrets") / "token"
    file.write_text(TOKEN + "\n")
    return server("--token-file", str(file), "--run", "any", "--timeout", "5")


def told(reply, status=200):
    assert reply.status_code == status, reply.text
    return reply.json()


def upload(pod, name, data):
    return pod.post("/upload", files={"file": (name, data)})


def test_commands(pod):
    def ran(command):
        return told(pod.post("/execute", json={"command": command}))

    assert ran("echo 'a b' $HOME") == {"stdout": "a b $HOME\n", "stderr": "", "exit_code": 0}
    assert ran("sh -c 'echo x >&2; exit 3'") == {"stdout": "", "stderr": "x\n", "exit_code": 3}
    assert ran("no-such-program")["exit_code"] == 127
    for command in ("echo 'a", "", "a\0b"):
        found = ran(command)
        assert found["exit_code"] == 1 and found["stderr"].startswith("The command does not start")
    found = ran("sleep 60")
    assert found["exit_code"] < 0 and "took longer than it may" in found["stderr"]
    assert told(pod.get("/"))["status"] == "ok"


def test_the_command_of_the_page(server, tmp_path):
    """It serves any address, with a token, and starts what it names."""
    [block] = re.findall(r"```sh\nfastaudit-rs serve (.*)\n```", PAGE)
    (tmp_path / "token").write_text(TOKEN)
    words = block.replace("0.0.0.0:8888", "0.0.0.0:0").replace(" token ", f" {tmp_path}/token ")
    client = server(*words.split())
    assert "0.0.0.0" in str(client.base_url)
    told(upload(client, "numbers.txt", b"1 2 3"))
    ran = told(client.post("/execute", json={"command": "wc -w numbers.txt"}))
    assert ran["stdout"] == "3 numbers.txt\n"


def test_a_denial_is_told_as_a_command_s_error(server):
    client = server("--run", "echo", headers={})
    found = told(client.post("/execute", json={"command": "ls /"}))
    assert found["exit_code"] == 77 and "To allow it: --run ls" in found["stderr"]


def test_files(pod):
    data = os.urandom(3 << 20)
    assert "uploaded successfully" in told(upload(pod, "data/a b%20ä.bin", data))["message"]
    assert pod.get("/download/data%2Fa%20b%2520%C3%A4.bin").content == data
    assert pod.get("/download/data/a%20b%2520ä.bin").content == data
    [entry] = told(pod.get("/list/data"))
    assert (entry["name"], entry["size"], entry["type"]) == ("a b%20ä.bin", len(data), "file")
    assert "data" in [entry["name"] for entry in told(pod.get("/list/"))]
    assert told(pod.get("/exists/")) == {"path": "", "exists": True}
    assert told(pod.get("/exists/data"))["exists"] is True
    assert told(pod.get("/exists/none/x")) == {"path": "none/x", "exists": False}
    for path in ("/download/none", "/download/data", "/list/none", "/list/data/none"):
        told(pod.get(path), 404)
    ran = told(pod.post("/execute", json={"command": "sh -c 'cat data/* | wc -c'"}))
    assert ran["stdout"].strip() == str(len(data))


def test_sessions(pod):
    def ran(name, code, **more):
        return told(pod.post(f"/sessions/{name}", json={"code": code, **more}))

    assert ran("a", "x = 6")["error"] is None
    assert ran("a", "x * 7")["value"] == 42
    assert ran("ben ü", "x")["error"]["kind"] == "NameError"
    assert told(pod.get("/sessions"))["sessions"] == ["a", "ben ü"]
    assert ran("a", "while True: pass", timeout=0.5)["killed_by"] == "wall_seconds"
    assert ran("a", "open('/srv/x', 'w')")["violations"][0]["rule"] == "write"
    told(pod.delete("/sessions/a"))
    assert ran("a", "globals().get('x')")["value"] is None
    with ThreadPoolExecutor() as threads:
        found = threads.map(lambda n: ran(f"s{n}", "import time; time.sleep(1); 1"), range(8))
        assert [each["value"] for each in found] == [1] * 8


def test_the_limit_of_the_server_is_the_most(server):
    step = {"code": "while True: pass", "timeout": 20}
    found = told(server("--timeout", "0.5", headers={}).post("/sessions/a", json=step))
    assert found["killed_by"] == "wall_seconds" and found["duration"] < 15


def test_names_and_texts_that_are_no_utf8(pod):
    code = r"import os; os.mkdir('odd'); open(b'odd/\xff', 'w').close(); print('\udcff')"
    assert told(pod.post("/sessions/odd", json={"code": code}))["error"] is None
    assert [entry["name"] for entry in told(pod.get("/list/odd"))] == ["?"]
    for command in (r"printf '\377'", "echo '\ud800'", "\ud800"):
        sent = json.dumps({"command": command})
        assert "exit_code" in told(pod.post("/execute", content=sent)), command


WRONG = [
    ("/execute", b"", 400),
    ("/execute", b"[" * 100_000, 400),
    ("/execute", b"[]", 400),
    ("/execute", b'{"command": 1}', 400),
    ("/execute", b'{"command": "echo", "shell": true}', 400),
    ("/sessions/a", b'{"code": "1", "timeout": true}', 400),
    ("/sessions/a", b'{"code": "1", "timeout": -1}', 400),
    ("/sessions/a", b'{"code": "1", "timeout": "9"}', 400),
    ("/sessions/a", b'{"code": "1", "timeout": 0}', 400),
    ("/sessions/a", b'{"code": "1", "timeout": NaN}', 400),
    ("/sessions/a", b'{"code": "1", "timeout": Infinity}', 400),
    (f"/sessions/{'a' * 201}", b'{"code": "1"}', 400),
    ("/sessions/a/b", b'{"code": "1"}', 404),
    ("/upload", b"", 400),
    ("/none", b"", 404),
    ("/download/a", b"", 405),
]


@pytest.mark.parametrize(("path", "body", "status"), WRONG)
def test_bad_requests(pod, path, body, status):
    assert told(pod.post(path, content=body), status)["message"]


def test_who_has_no_token(pod):
    requests = [("GET", "/sessions"), ("GET", "/list/."), ("GET", "/download/x")]
    requests += [("POST", "/execute"), ("POST", "/upload"), ("POST", "/sessions/a")]
    for method, path in (*requests, ("DELETE", "/sessions/a"), ("GET", "//sessions")):
        for given in ("", "Bearer", f"Bearer {TOKEN}x", f"bearer {TOKEN}", TOKEN, "Bearer ü"):
            headers = {"Authorization": given.encode("latin-1")}
            url = f"http://127.0.0.1:{pod.base_url.port}{path}"
            body = b'{"command": "touch stolen"}'
            reply = httpx.request(method, url, headers=headers, content=body)
            assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
    assert told(pod.get("/exists/stolen"))["exists"] is False
    # What asks whether the pod is alive needs none.
    assert httpx.get(pod.base_url).json()["status"] == "ok"


def test_pages_of_others(server):
    """Without a token a browser's pages reach nothing, by whatever name (DNS rebinding)."""
    client = server("--run", "any", headers={})
    port = client.base_url.port
    command = {"command": "touch stolen"}
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"localhost:{port}.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port}1"},
    ):
        reply = client.post("/execute", json=command, headers=headers)
        assert reply.status_code in (400, 403, 421), headers
    assert told(client.get("/exists/stolen"))["exists"] is False
    own = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
    assert told(client.post("/execute", json=command, headers=own))["exit_code"] == 0


OUTSIDE = ["..", "../x", "a/../../x", "/../etc/passwd", "a/./../..", "x\0y", ".." + "/.." * 30]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out(pod, name):
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    for path in ("/download/", "/list/", "/exists/"):
        assert told(pod.get(path + quoted), 403) == {"message": "Access denied"}
    if "\0" not in name:
        assert told(upload(pod, name, b"x"), 403) == {"message": "Access denied"}


def test_links_of_the_code_are_not_followed(pod):
    command = {"command": "ln -s /etc /etc/passwd ."}
    assert told(pod.post("/execute", json=command))["exit_code"] == 0
    for path in ("/download/passwd", "/download/etc/passwd", "/list/etc"):
        assert pod.get(path).status_code in (400, 403, 404)
        assert b"root:" not in pod.get(path).content
    assert upload(pod, "etc/x", b"x").status_code in (400, 403)
    assert not os.path.exists("/etc/x")


def test_large_bodies(pod):
    def pieces(number):
        yield b"--b\r\nContent-Disposition: form-data; name=file; filename=large\r\n\r\n"
        for _ in range(number):
            yield b"x" * (1 << 20)

    for path, most in (("/execute", 8), ("/sessions/a", 8), ("/upload", 100)):
        reply = pod.post(path, content=pieces(most + 1), headers=FORM if "up" in path else {})
        assert reply.status_code == 413, path
    assert told(pod.get("/"))["status"] == "ok"


FORM = {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b\r\n",
        b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nx\r\n--b--\r\n",
        b"--b\r\nContent-Disposition: form-data; name=x; filename=y\r\n\r\nx\r\n--b--\r\n",
        b"--b\r\nContent-Disposition: form-data; name=file; filename=\r\n\r\nx\r\n--b--\r\n",
        b"--b\r\nContent-Disposition: form-data; name=file; filename=y\r\n\r\nx\r\n" * 2 + b"--b--",
    ],
)
def test_malformed_forms(pod, body):
    assert told(pod.post("/upload", content=body, headers=FORM), 400)["message"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--http", "0.0.0.0:1"], "who they are; with --token-file it serves there"),
        (["--http", "x"], "--http takes an address"),
        (["--token-file", "/none"], "No such file"),
        (["--sessions", "0"], "--sessions takes a number from 1"),
        (["--timeout", "0"], "--timeout takes seconds"),
    ],
)
def test_bad_options(options, message, capsys):
    assert main(["serve", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "short", "ä" * 20, "a token with\nmore lines"])
def test_a_token_that_is_none(tmp_path, content, capsys):
    (tmp_path / "token").write_text(content)
    assert main(["serve", "--token-file", str(tmp_path / "token")]) == 2
    assert "must have 16 characters of ASCII or more" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--http", "0"],
        ["mcp", "--http", "0"],
        [
            "run",
            "--sandbox",
            "--write",
            "OUT",
            "-c",
            "open('OUT/begun', 'w'); import time; time.sleep(60)",
        ],
    ],
    ids=lambda command: command[0],
)
def test_a_supervisor_ends_it(tmp_path, command, number):
    """By the signal of `systemctl stop`, `docker stop` or a closed terminal: nothing is left."""
    if command[0] == "mcp":
        pytest.importorskip("mcp")
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    for each in (out, temporary):
        each.mkdir()
    command = [word.replace("OUT", str(out)) for word in command]
    with (
        subprocess.Popen(
            [sys.executable, "-m", "fastaudit_rs", *command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
            # As it is where nobody ran the tests by `nohup`.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        if command[0] == "run":
            until((out / "begun").exists)
        else:
            url = re.search(r"http://\S+", process.stderr.readline())[0]
            if command[0] == "serve":
                step = {"code": "open('a', 'w').close(); import time; time.sleep(60)"}
                threads = stack.enter_context(ThreadPoolExecutor())
                threads.submit(httpx.post, f"{url}/sessions/a", json=step, timeout=60)
                until(lambda: httpx.get(f"{url}/exists/a").json()["exists"])
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) in [(128 + number, ""), (128 + signal.SIGTERM, "")]
    assert os.listdir(temporary) == []
