"""`Policy.lint()` and `Policy.preset()`."""

import os

import pytest
from repository import ROOT

from fastaudit_rs import Network, Policy

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

    def test_patterns_where_a_name_stands_for_itself(self, places):
        os.mkdir(places.ok + "/*")
        policy = Policy(
            write=[places.ok + "/a/*.txt", "/*", places.ok + "/*"],
            block=["private/*"],
            protect=["*.key"],
            env=["A*B", "MY_*", "*"],
            network=Network(unix=["@a*", "/run/*.sock"]),
        )
        is_file = "is the path of one file, no pattern: write the directory,"
        assert policy.lint() == [
            f'write[0]: "{places.ok}/a/*.txt" {is_file} "{places.ok}/a"',
            f'write[1]: "/*" {is_file} "/"',
            f'block[0]: "{os.getcwd()}/private/*" {is_file} "{os.getcwd()}/private"',
            f'network.unix[1]: "/run/*.sock" {is_file} "/run"',
            'protect[0]: "*.key" is the name of one file, no pattern: write each name',
            'env[0]: "A*B" has a * that stands for itself: a pattern ends with it, as "A*"',
        ]

    def test_requests(self):
        hosts = ["a.org", "*.b.org:443", "10.0.0.0/8"]
        good = ["GET a.org:80/", "GET x.b.org/*", "* *.b.org:443/*", "GET 10.1.1.1/"]
        bad = ["GET c.org/", "GET b.org/", "GET x.b.org:80/", "GET 11.1.1.1/"]
        policy = Policy(network=Network(hosts=hosts, http=[*good, *bad]))
        assert policy.lint() == [
            *(f'network.http[{4 + at}]: hosts has no host of "{bad[at]}"' for at in range(4)),
            "network.http: a sandbox alone reads requests; without one its hosts are not reached",
        ]

    def test_other_fields(self):
        policy = Policy(
            protect=["x"],
            max_bytes=1,
            env=["LD_*", "MY_*", "*"],
            imports={"allow": ["a.b"], "block": ["a"]},
            import_allow=["a.b", "c.d", "c"],
            network=Network(hosts=["10.0.0.1", "a.org"], block=["10.0.0.0/8", "a.org"]),
        )
        assert policy.lint() == [
            "protect: nothing may be written anyway",
            "max_bytes: nothing may be written anyway",
            'env[0]: "LD_*" stands for dangerous variables alone, which need naming',
            'imports.allow[0]: "a.b" is in imports.block[0]',
            'import_allow[0]: "a.b" is in imports.block[0]',
            'import_allow[1]: another name has "c.d" in it already',
            'network.hosts[0]: "10.0.0.1" is in block',
            'network.hosts[1]: "a.org" is in block',
        ]


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
