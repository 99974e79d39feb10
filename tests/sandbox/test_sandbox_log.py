"""The log of a sandbox's decisions, and of sessions in both places."""

import json
import os
import textwrap

import pytest

from fastaudit_rs import AuditLog, Policy, Sandbox


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "audit.jsonl")


@pytest.fixture
def sandbox(path):
    with Sandbox(confine="audit", log=AuditLog(path, name="agent 7")) as sandbox:
        yield sandbox


def lines_of(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def told(path):
    return [(line["verdict"], os.path.basename(line["path"])) for line in lines_of(path)]


WRITES = textwrap.dedent("""
    open("allowed", "w").close()
    try: open("/denied", "w")
    except OSError: pass
""")


def test_a_run(sandbox, path):
    result = sandbox.run(WRITES)
    assert result.success
    own = [line for line in lines_of(path) if line["effect"] == "write"]
    assert [line["path"] for line in own] == [str(sandbox.directory / "allowed"), "/denied"]
    allowed, denied = own
    assert {line["source"] for line in own} == {"guest"}
    assert {line["guard"] for line in own} == {"agent 7"}
    assert {line["version"] for line in own} == {2}
    assert allowed["pid"] != os.getpid()
    assert (allowed["verdict"], denied["verdict"], denied["rule"]) == ("allowed", "denied", "write")


def test_runs_one_after_another_and_processes(sandbox, path):
    code = """
        import os
        for number in range(100):
            os.mkdir(f"{number}")
        if os.fork() == 0:
            for number in range(100, 200):
                os.mkdir(f"{number}")
            os._exit(0)
        os.wait()
    """
    for _ in range(2):
        assert sandbox.run(textwrap.dedent(code)).success
        for number in range(200):
            (sandbox.directory / str(number)).rmdir()
    names = [line["path"] for line in lines_of(path) if line["event"] == "os.mkdir"]
    assert sorted(os.path.basename(name) for name in names) == sorted(
        [str(number) for number in range(200)] * 2
    )


def test_the_timeline_of_a_run(sandbox):
    result = sandbox.run(WRITES)
    acts = [act for act in result.timeline if act.kind == "write"]
    assert [(act.verdict, act.rule, os.path.basename(act.target)) for act in acts] == [
        ("allowed", None, "allowed"),
        ("denied", "write", "denied"),
    ]
    assert repr(acts[1]) == "<Act denied write /denied>"
    assert "timeline" in result._repr_html_()
    assert acts[0].time <= acts[1].time


def test_a_timeline_has_requests_beside_files():
    from fastaudit_rs.results import Result
    from fastaudit_rs.timeline import Request

    decision = {"rule": None, "event": "open", "effect": "write", "args": []}
    decisions = [
        {**decision, "time": 1.0, "verdict": "allowed", "path": "/a"},
        {
            **decision,
            "time": 3.0,
            "verdict": "denied",
            "rule": "commands",
            "effect": "process",
            "command": ["ls", "-l"],
        },
    ]
    get = Request("h.com", 80, "GET", "/x", 200, 0, 5, "allowed", None, None, 2.0, 0.1)
    refused = Request("::1", 81, None, None, None, 0, 0, "denied", "network.hosts", None, 4.0, 0.0)
    result = Result(0, "", "", 1.0, None, requests=[get, refused], decisions=decisions)
    assert [(act.kind, act.target, act.verdict) for act in result.timeline] == [
        ("write", "/a", "allowed"),
        ("request", "GET h.com:80/x (200)", "allowed"),
        ("process", "ls -l", "denied"),
        ("request", "[::1]:81", "denied"),
    ]
    assert "GET h.com:80/x (200)" in result._repr_html_()
    plain = Result(0, "", "", 1.0, None, requests=[get], changed=["out.txt"])
    assert [(act.kind, act.time) for act in plain.timeline] == [("request", 2.0), ("changed", None)]


@pytest.mark.slow
def test_a_run_that_is_killed_has_its_denials(path):
    from fastaudit_rs import Limits

    with Sandbox(limits=Limits(wall_seconds=1), confine="audit", log=path) as sandbox:
        result = sandbox.run(WRITES + "while True: pass")
    assert result.timed_out
    assert ("denied", "denied") in told(path)


#: A guest that has found the pipe of the log.
PIPE = """
import os, stat
own = [fd for fd in range(3, 100) if os.path.exists(f"/proc/self/fd/{fd}")
       and stat.S_ISFIFO(os.fstat(fd).st_mode)]
def write(data):
    for fd in own:
        try: os.write(fd, data)
        except OSError: pass
"""


def test_a_guest_that_writes_what_it_likes(sandbox, path):
    """The pipe of the log is open in the guest, which may write anything to it."""
    code = """
common = b'"time":0,"verdict":"allowed","rule":null,"effect":"x"'
lines = [
    b"nonsense", b"[1]", b"{}", b"[" * 5000, b"\\xff",
    b'{%b,"event":"open","args":[NaN]}' % common,
    b'{%b,"event":{"a":1},"args":[]}' % common,
    b'{%b,"event":"forged","source":"host","args":[]}' % common,
    b'{%b,"event":"forged","args":[]}' % common,
    b"x" * 100_000,
    b'{%b,"event":"open","args":[1e999]}' % common,
    b'{%b,"event":"open","args":[%b]}' % (common, b"9" * 40),
    b'{%b,"event":"open","args":[]}' % common.replace(b":0", b":1e300", 1),
    b'{%b,"event":"open","args":[]}' % common.replace(b":0", b":-1", 1),
    b'{%b,"event":"half","args":["\\\\udcff"]}' % common,
]
write(b"\\n".join(lines) + b"\\n")
"""
    sandbox.run(PIPE + code)
    found = lines_of(path)
    forged = [line for line in found if line["event"] == "forged"]
    assert [(line["source"], line["guard"]) for line in forged] == [("guest", "agent 7")]
    [lost] = [line for line in found if line["event"] == "fastaudit.lost"]
    assert (lost["lost"], lost["source"]) == (13, "guest")
    assert [line["args"] for line in found if line["event"] == "half"] == [["?"]]


@pytest.mark.slow
def test_a_guest_that_writes_without_end(sandbox, path):
    code = """
line = b'{"time":0,"verdict":"allowed","rule":null,"event":"forged","effect":"x"'
line += b',"args":["%b"]}' % (b"x" * 4000) + b"\\n"
for _ in range(6000):
    write(line)
"""
    sandbox.run(PIPE + code)
    assert os.path.getsize(path) < 20 << 20
    assert lines_of(path)[-1]["lost"] > 1000


@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_a_session(place, path, places):
    if place == "here":
        session = Policy(write=[places.ok]).session(log=path, directory=places.ok)
        with session:
            session.run("open('a', 'w').close()")
            assert ("allowed", "a") in told(path)
        return
    with Sandbox(confine="audit", log=path) as sandbox:
        with sandbox.session() as session:
            session.run("open('a', 'w').close()")
            session.run("open('/denied', 'w')")
        assert [each for each in told(path) if each[1] in ("a", "denied")] == [
            ("allowed", "a"),
            ("denied", "denied"),
        ]
        assert {line["source"] for line in lines_of(path)} == {"guest"}


def test_the_command(command, places):
    command("run", "--write", places.ok, "--log", "log", "-c", f"open('{places.ok}/a', 'w')")
    with open("log") as lines:
        found = [json.loads(line) for line in lines]
    assert [(line["verdict"], line["path"]) for line in found] == [("allowed", places.ok + "/a")]
    ended = command("run", "--log", "no/such", "-c", "")
    assert ended.returncode == 2
    assert "no/such" in ended.stderr or "No such file" in ended.stderr


def test_containers_have_none(path):
    with pytest.raises(ValueError, match="log needs backend='process'"):
        Sandbox(backend="docker", image="x", log=path)
