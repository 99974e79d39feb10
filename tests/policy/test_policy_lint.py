"""`Policy.lint()` and `Policy.preset()`."""

import os
import socket
import sys

import pytest
from repository import ROOT

from fastaudit_rs import AuditDenied, Network, Policy, mk_audit

PAGE = ROOT / "docs/policy.md"


class TestLint:
    def test_nothing_to_say(self, places):
        policy = Policy(write=[".", places.ok], block=[places.ok + "/x"], commands=["true"])
        assert policy.lint() == []
        for name in Policy.PRESETS:
            assert Policy.preset(name).lint() == []

    def test_paths_are_compared_where_they_lead(self, places):
        os.symlink(places.ok, places.out + "/link")
        policy = Policy(write=[places.ok, places.out + "/link/a"], read=["~"], block=["/"])
        assert policy.lint() == [
            f"write[1]: '{places.ok}/a' is inside write[0], '{places.ok}'".replace("'", '"'),
            f'write[0]: "{places.ok}" is inside block[0], "/"',
            f'write[1]: "{places.ok}/a" is inside block[0], "/"',
            f'read[0]: "{os.path.realpath(os.path.expanduser("~"))}" is inside block[0], "/"',
        ]

    def test_programs_that_are_not_there(self):
        policy = Policy(commands=["true", "no-such-program", "/no/such/program"])
        assert policy.lint() == [
            'commands[1]: there is no program "no-such-program"',
            'commands[2]: there is no program "/no/such/program"',
        ]

    def test_other_fields(self):
        policy = Policy(
            env=["LD_*"],
            imports={"allow": ["a.b"], "block": ["a"]},
            import_allow=["a"],
            network=Network(hosts=["10.0.0.1"], block=["10.0.0.0/8"]),
        )
        assert [line.split(":")[0] for line in policy.lint()] == [
            "env[0]",
            "imports.allow[0]",
            "import_allow[0]",
            "network.hosts[0]",
        ]

    def test_what_it_names_never_applies(self, places):
        """The policy says the same without the rule."""
        with_it = Policy(write=[places.ok, places.ok + "/a"])
        without = Policy(write=[places.ok])
        for path in (places.ok + "/a/b", places.ok + "/c", places.out + "/a"):
            arguments = ("os.mkdir", path, 0o777, -1)
            assert with_it.explain(*arguments).allowed == without.explain(*arguments).allowed


class TestPresets:
    def test_each_is_shown_in_the_docs(self):
        """As the TOML that it stands for."""
        page = PAGE.read_text()
        for name in Policy.PRESETS:
            start = page.index(f"#### `{name}`")
            text = page[start:].split("```toml\n")[1].split("```")[0]
            assert Policy.parse_toml(text) == Policy.preset(name), name

    def test_there_is_none(self):
        with pytest.raises(ValueError, match="name must be one of readonly, workspace, notebook, "):
            Policy.preset("none")

    def test_readonly(self, places):
        with Policy.preset("readonly").guard(monitor_calls=False)():
            os.listdir("/")
            os.environ["A_B"] = "1"
            with pytest.raises(AuditDenied):
                open(places.ok + "/a", "w")
            with pytest.raises(AuditDenied):
                socket.getaddrinfo("localhost", 80)
        del os.environ["A_B"]

    def test_workspace_and_notebook(self, places):
        for name in ("workspace", "notebook"):
            with Policy.preset(name).guard(monitor_calls=False)():
                open("a", "w").close()
                with pytest.raises(AuditDenied):
                    open(places.ok + "/a", "w")
                with pytest.raises(AuditDenied):
                    os.mkdir(".ssh")
                with pytest.raises(AuditDenied):
                    os.system("true")
        assert Policy.preset("workspace").network == Network(
            hosts=["127.0.0.0/8", "::1"],
            listen=["127.0.0.0/8", "::1"],
            unix=["."],
            lookup=False,
        )
        assert Policy.preset("notebook").network is True

    def test_that_of_mk_audit(self, places):
        """It says of each event what `mk_audit` does with it."""
        policy = Policy.preset("fastaudit-0.1").replace(write=[places.ok])
        events = [
            ("open", path, mode, flags)
            for path in (places.ok + "/a", places.out + "/a", ".bashrc", places.ok + "/.bashrc")
            for mode, flags in (("w", 0), ("r", 0), (None, os.O_RDWR))
        ]
        events += [
            ("os.mkdir", places.ok + "/a", 0o777, -1),
            ("os.chdir", places.out),
            ("os.putenv", b"A", b"b"),
            ("os.system", b"true"),
            ("os.kill", 1, 9),
            ("socket.connect", None, ("127.0.0.1", 1)),
            ("import", "wave", None, [], [], []),
            ("tests.of.ours",),
            ("fastaudit.call", "a", "b.c"),
            ("_thread.start_new_thread", int, (), {}),
        ]
        for event in events:
            with mk_audit([places.ok], monitor_calls=False)():
                try:
                    sys.audit(*event)
                    message = "allowed"
                except AuditDenied as denied:
                    message = denied.message
            explanation = policy.explain(*event)
            denied = explanation.denied
            assert (denied.message if denied else "allowed") == message, event
