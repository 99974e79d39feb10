"""The options of the command and of the magics: what they say, wherever they are."""

import argparse
import os
import shlex
import socket
import sys

import pytest

from fastaudit_rs import Limits, Network, Policy
from fastaudit_rs.tools import options as module
from fastaudit_rs.tools.options import AUDIT, DEFAULT, EACH, RUN, SANDBOX

HERE = os.getcwd()


def read(words, surface=RUN):
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    module.add_options(parser, surface)
    return parser.parse_args(shlex.split(words))


def network(hosts=(), listen=False):
    return Network(hosts=hosts, listen=listen)


PERMISSIONS = {
    "": {},
    "--write .": {"write": [HERE]},
    "--write a --write=/srv": {"write": [f"{HERE}/a", "/srv"]},
    "--write ~/a": {"write": [os.path.expanduser("~/a")]},
    "--write any": {"write": None},
    "--read /srv": {"read": ["/srv"]},
    "--read any": {"read": None},
    "--run git --run ls": {"commands": ["git", "ls"]},
    "--run any": {"commands": True},
    "--env PATH": {"env": ["*", "PATH"]},
    "--env any": {"env": True},
    "--net a.example:443 --net 127.0.0.1": {"network": network(["a.example:443", "127.0.0.1"])},
    "--net any --listen 80": {"network": True},
    "--listen 80": {"network": network(listen=["*:80"])},
    "--listen 127.0.0.1:80": {"network": network(listen=["127.0.0.1:80"])},
    "--listen 80-90 --net a.example": {"network": network(["a.example"], ["*:80-90"])},
    "--set \"threads='deny'\"": {"threads": "deny"},
    "--set threads=deny": {"threads": "deny"},
}


class TestPermissions:
    @pytest.mark.parametrize("words", PERMISSIONS)
    def test_each(self, words):
        for surface in EACH:
            policy = module.policy_of(read(words, surface))
            assert policy == DEFAULT.replace(**PERMISSIONS[words])

    @pytest.mark.parametrize(
        ("words", "fields"),
        [
            ("", {}),
            (
                "--write /b --run ls --net b.example --env B --read any",
                {
                    "write": ["/a", "/b"],
                    "commands": ["git", "ls"],
                    "network": network(["a.example", "b.example"]),
                    "env": ["A", "B"],
                    "read": None,
                },
            ),
            ("--set 'write=[\"/c\"]'", {"write": ["/c"]}),
        ],
    )
    def test_they_add_to_a_policy(self, tmp_path, words, fields):
        policy = Policy(
            write=["/a"],
            commands=["git"],
            network=network(["a.example"]),
            env=["A"],
            read=["/usr"],
        )
        file = tmp_path / "policy.toml"
        file.write_text(policy.to_toml())
        assert module.policy_of(read(f"--policy {file} {words}")) == policy.replace(**fields)

    @pytest.mark.parametrize(
        "words", ["--net a:b", "--listen 300.1:x", "--set x", "--policy missing.toml"]
    )
    def test_wrong_ones(self, words):
        with pytest.raises((OSError, ValueError), match=words.split()[1]):
            module.policy_of(read(words))

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ("network.max_connections=4", "write --set 'network={max_connections=4}'"),
            ("network.lookup = true", "write --set 'network={lookup=true}'"),
            ("[network]", "write a field and its value, such as --set 'write=[\"out\"]'"),
            ("[network]\nlookup=true", "write a field and its value, such as "),
            ("", "write a field and its value, such as "),
            ("foo", "is not TOML: "),
            ("foo=1", 'has the unknown key "foo"'),
            ("write=3", "write must be "),
        ],
    )
    def test_wrong_fields(self, given, told):
        for surface in EACH:
            with pytest.raises(ValueError) as wrong:
                module.policy_of(read(f"--set {shlex.quote(given)}", surface))
            assert str(wrong.value).startswith(f"--set {shlex.quote(given)}: {told}")

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ("", "write nothing, reach no host and start no program"),
            (
                "--write a --write /b --net pypi.org --run git --read any",
                f"write {HERE}/a or /b, reach pypi.org and start git",
            ),
            (
                "--read /r --write any --net any --run any",
                "read /r, write anywhere, reach any host and start any program",
            ),
        ],
    )
    def test_in_a_sentence(self, words, told):
        assert module.allowances(module.policy_of(read(words))) == told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--net http://a.org", "--net must be a host name"),
        ("--listen x:y", "--listen must be a host name"),
        ("--run 'git push'", "--run must be the name or the path of one program"),
        ("--env A=b", "--env must be the name of a variable"),
    ],
)
def test_a_wrong_value_names_its_option(words, message):
    with pytest.raises(ValueError) as wrong:
        module.policy_of(read(words))
    assert str(wrong.value).startswith(message)


class TestLimits:
    def test_each(self):
        assert module.limits_of(read("")) == Limits(memory=None, wall_seconds=None)
        limits = module.limits_of(read("--timeout 0.5 --memory 512M"))
        assert limits == Limits(memory="512M", wall_seconds=0.5)

    @pytest.mark.parametrize(
        ("option", "values", "message"),
        [
            ("--timeout", ["0", "-1", "soon", "inf", "nan"], "takes seconds, such as 30 or 0.5"),
            ("--memory", ["0", "much", "-1"], "takes a size such as 512M"),
        ],
    )
    def test_wrong_ones(self, option, values, message):
        for value in values:
            with pytest.raises(ValueError) as wrong:
                module.limits_of(read(f"{option}={value}"))
            assert str(wrong.value) == f"{option} {message}, not {value}"


@pytest.mark.parametrize(
    ("surface", "words"),
    [
        (AUDIT, "--write a --write 'b c' --net h --policy p --ask --approvals f"),
        (SANDBOX, "--read any --run ls --set x=1 --memory 1G"),
    ],
)
def test_written_again(surface, words):
    """Those that hold for one cell alone are left out."""
    alone = {AUDIT: "--record --all", SANDBOX: "--timeout 3 -i x -o y --reset"}
    given = read(f"{words} {alone[surface]}", surface)
    assert module.line_of(surface, given) == f"{surface} {words}"


@pytest.mark.parametrize(
    ("verdict", "event", "option"),
    [
        ("allowed", "socket.bind", ""),
        ("write", "os.remove", "--write"),
        ("commands", "os.system", "--run"),
        ("network", "socket.connect", "--net"),
        ("network", "socket.bind", "--listen"),
        ("network.hosts", "socket.connect", "--net"),
        ("network.listen", "socket.bind", "--listen"),
        ("block", "os.remove", "block"),
    ],
)
def test_what_a_verdict_needs(verdict, event, option):
    assert module.needed_for(verdict, event) == option


class TestOfARecording:
    def recorded(self, *events, words=""):
        given = read(words)
        with module.policy_of(given).observe(monitor_calls=False)() as recording:
            for event in events:
                sys.audit(*event)
        return module.options_of(recording, given)

    def test_they_allow_it(self, tmp_path):
        with socket.socket() as connecting:
            events = [
                ("os.mkdir", f"{tmp_path}/a b", 0o777, -1),
                ("socket.connect", connecting, ("127.0.0.1", 9)),
                ("os.putenv", b"MODE", b"x"),
                ("os.putenv", b"PATH", b"x"),
            ]
            words = self.recorded(*events)
            assert words == f"--write '{tmp_path}/a b' --net 127.0.0.1:9 --env PATH"
            assert self.recorded(*events, words=words) is None

    def test_names_act_on_no_terminal(self, tmp_path):
        words = self.recorded(("os.mkdir", f"{tmp_path}/\x1b'", 0o777, -1))
        assert words == f"--write $'{tmp_path}/\\033\\047'"
