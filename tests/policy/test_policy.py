"""`Policy`: the object, its guards, `explain`, bad values, TOML."""

import copy
import os
import pickle
import socket
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fastaudit_rs import AuditDenied, AuditPerms, Network, Policy, mk_audit


def touch(path):
    open(path, "w").close()


def read(path):
    with open(path) as file:
        return file.read()


class TestObject:
    def test_fields(self):
        policy = Policy(write=[Path("a"), b"b"], read=iter(["."]), block=("/x",), protect=["y"])
        assert policy.write == ("a", "b")
        assert policy.read == (".",)
        assert policy.block == ("/x",)
        assert policy.protect == ("y",)
        assert repr(policy).startswith(
            "Policy(write=('a', 'b'), read=('.',), block=('/x',), protect=('y',), max_bytes=None, "
        )
        assert eval(repr(policy)) == policy
        assert repr(Policy()) == (
            "Policy(write=(), read=None, block=(), protect=True, max_bytes=None, commands=False, "
            "env=False, import_allow=(), threads='deny', unknown_events='allow', native=False, "
            "on_violation='raise', imports=True, network=True, packages=())"
        )
        assert Policy(commands=["ls"]).commands == ("ls",)
        assert Policy(env=["A"]).env == ("A",)
        assert Policy(network=False).network is False
        assert Policy(max_bytes=10).max_bytes == 10
        assert Policy(max_bytes="10K").max_bytes == 10240
        assert Policy(import_allow=["numpy"]).import_allow == ("numpy",)
        assert Policy(threads="inherit").threads == "inherit"
        assert Policy(unknown_events="deny").unknown_events == "deny"
        assert Policy(native=["a.b"]).native == ("a.b",)
        assert Policy(on_violation="log").on_violation == "log"
        assert Policy(on_violation=print).on_violation is print
        assert Policy(imports=["a"]).imports == ("a",)
        blocks = {"allow": True, "block": ("a",)}
        assert Policy(imports={"block": ["a"]}).imports == blocks
        rules = Network(hosts=["a.org"], ports=[80, "90-99"], unix=["@x"], max_connections=3)
        assert Policy(network=rules).network == rules
        assert (rules.hosts, rules.ports, rules.unix) == (("a.org",), (80, "90-99"), ("@x",))
        assert (rules.block, rules.listen, rules.lookup) == ((), False, True)
        assert rules.max_connections == 3
        assert eval(repr(rules)) == rules
        assert hash(eval(repr(rules))) == hash(rules)

    def test_rules_for_the_network_can_be_copied(self):
        rules = Network(hosts=["a.org"], block=["b.org"], ports=[80, "90-99"], listen=["::1"])
        for copied in (pickle.loads(pickle.dumps(rules)), copy.deepcopy(rules)):
            assert copied == rules
        assert rules != Network()
        assert rules != 1
        with pytest.raises(AttributeError):
            rules.hosts = None

    def test_is_immutable(self):
        policy = Policy()
        with pytest.raises(AttributeError):
            policy.write = ("/",)
        with pytest.raises(AttributeError):
            policy.other = 1

    def test_equality_and_hash(self):
        assert Policy(write=["a"]) == Policy(write=("a",))
        assert hash(Policy(write=["a"])) == hash(Policy(write=("a",)))
        assert Policy(write=["a"]) != Policy(write=["b"])
        assert Policy() != 1
        assert len({Policy(), Policy(), Policy(read=())}) == 2

    def test_replace(self):
        policy = Policy(write=["a"], block=["b"])
        assert policy.replace(write=None) == Policy(write=None, block=["b"])
        assert policy.replace() == policy
        with pytest.raises(TypeError, match='a policy has no field "wirte": the fields are write,'):
            policy.replace(wirte=["a"])
        with pytest.raises(TypeError, match="write must be None or an iterable of paths, not int"):
            policy.replace(write=1)

    @pytest.mark.parametrize(
        ("fields", "error", "message"),
        [
            ({"write": Path("x")}, TypeError, "write must be None or an iterable of paths, not P"),
            ({"write": 1}, TypeError, "write must be None or an iterable of paths, not int"),
            ({"read": ["a", 1]}, TypeError, r"read\[1\] must be a path, not int"),
            ({"block": None}, TypeError, "block must be an iterable of paths, not NoneType"),
            ({"protect": "x"}, TypeError, "protect must be True, False or an iterable of names"),
            ({"protect": None}, TypeError, "protect must be True, False or an iterable of names"),
            ({"protect": ["a/../b"]}, ValueError, r"protect\[0\] must be a name, or names below"),
            ({"protect": ["/a"]}, ValueError, r"protect\[0\] must be a name, or names below"),
            ({"protect": [""]}, ValueError, r"protect\[0\] must be a name, or names below"),
            ({"block": ["a\0"]}, ValueError, r"block\[0\] must not contain a NUL"),
            ({"read": ["\udcff"]}, ValueError, r"read\[0\] must be UTF-8 text, as TOML is"),
            ({"read": [b"\xff"]}, ValueError, r"read\[0\] must be UTF-8 text, as TOML is"),
            ({"env": None}, TypeError, "env must be True, False or an iterable of names, not None"),
            ({"env": [1]}, TypeError, r"env\[0\] must be a name, not int"),
            ({"packages": [1]}, TypeError, r"packages\[0\] must be a package's name, not int"),
            ({"network": {"hosts": [1]}}, TypeError, r"hosts\[0\] must be a host, not int"),
            ({"env": ["A", ""]}, ValueError, r"env\[1\] must be the name of a variable"),
            ({"env": ["A=B"]}, ValueError, r"env\[0\] must be the name of a variable"),
            ({"commands": [""]}, ValueError, r"commands\[0\] must be the name or the path of one"),
            (
                {"network": None},
                TypeError,
                "network must be True, False, a Network or a dict of its fields, not None",
            ),
            (
                {"network": 1},
                TypeError,
                "network must be True, False, a Network or a dict of its fields, not int",
            ),
            ({"max_bytes": "x"}, ValueError, "max_bytes must be None, a number of bytes from 0 or"),
            ({"max_bytes": -1}, ValueError, "max_bytes must be None, a number of bytes from 0 or"),
            ({"max_bytes": True}, TypeError, "max_bytes must be None, a number .*, not bool"),
            ({"max_bytes": 1.5}, TypeError, "max_bytes must be None, a number .*, not float"),
            ({"threads": "allow"}, ValueError, "threads must be 'deny' or 'inherit', not 'allow"),
            ({"native": ["a b"]}, ValueError, r"native\[0\] must be the name of a module"),
            ({"import_allow": True}, TypeError, "import_allow must be an iterable of modules, not"),
            ({"import_allow": ["a."]}, ValueError, r"import_allow\[0\] must be the name of a mod"),
            ({"imports": "json"}, TypeError, "imports must be True, False, an iterable of modules"),
            ({"imports": ["*"]}, ValueError, r"imports.allow\[0\] must be the name of a module"),
            ({"imports": {"deny": []}}, ValueError, 'imports has the unknown key "deny": the keys'),
            ({"imports": {"block": True}}, TypeError, r"imports\['block'\] must be an iterable"),
            ({"on_violation": "print"}, ValueError, "on_violation must be 'raise' or 'warn' or 'l"),
            ({"on_violation": 1}, TypeError, "on_violation must be .* or a function, not int"),
            ({"on_violation": lambda: 0}, TypeError, "on_violation must take the arguments"),
        ],
    )
    def test_bad_values(self, fields, error, message):
        with pytest.raises(error, match=message):
            Policy(**fields)


class TestGuard:
    def test_gives_what_mk_audit_gives(self, places):
        asked = []

        def before_deny(event, args, frame, message, data):
            asked.append((event, message, data))
            return event == "os.mkdir"

        perms = Policy(write=[places.ok], block=[places.ok + "/b"]).guard(
            before_deny, data=7, monitor_calls=False
        )
        assert isinstance(perms, AuditPerms)
        with perms() as guard:
            os.mkdir(places.ok + "/b")
            with pytest.raises(AuditDenied):
                os.rmdir(places.ok + "/b")
        assert asked[0] == (
            "os.mkdir",
            f"Denied: make the directory '{places.ok}/b': it is blocked",
            7,
        )
        assert [denied.rule for denied in guard.violations] == ["block"]

    def test_guards_in_other_threads_keep_to_their_own(self, places, elsewhere):
        """While a policy restricts reading and the network, `mk_audit` still does not."""
        strict = Policy(read=[], network=False).guard(monitor_calls=False)
        loose = mk_audit([places.ok], monitor_calls=False)
        Path(places.out, "a").touch()

        def look_around():
            with loose():
                read(places.out + "/a")
                os.listdir(places.out)
                socket.getaddrinfo("127.0.0.1", 80)
                with pytest.raises(AuditDenied) as caught:
                    touch(places.out + "/b")
            return caught.value.rule

        with strict():
            assert elsewhere(look_around) == "write"
            for operation in (read, os.listdir):
                with pytest.raises(AuditDenied) as caught:
                    operation(places.out + "/a")
                assert caught.value.rule == "read"

    def test_checks_its_arguments_as_mk_audit_does(self):
        with pytest.raises(TypeError, match="before_deny must be None or a function"):
            Policy().guard(1, monitor_calls=False)

    def test_cannot_be_made_under_a_guard(self, places):
        policy = Policy(write=None)
        with mk_audit([places.ok], monitor_calls=False)():
            with pytest.raises(AuditDenied, match="audit_perms.set_config"):
                policy.guard(monitor_calls=False)

    def test_roots_are_resolved_when_it_is_made(self, places, monkeypatch):
        policy = Policy(write=["sub/../sub"])
        os.mkdir("sub")
        perms = policy.guard(monitor_calls=False)
        monkeypatch.chdir(places.out)
        with perms():
            touch(places.cwd + "/sub/a")


class TestExplain:
    def test_says_what_would_happen(self, places):
        policy = Policy(write=[places.ok], block=[places.ok + "/b"])
        allowed = policy.explain("open", places.ok + "/a", "w", 0)
        assert (allowed.allowed, allowed.denied, allowed.rule) == (True, None, None)
        assert str(allowed) == "allowed"
        assert policy.explain("open", places.out + "/a", "r", 0).allowed
        # As `open()` itself takes them.
        assert policy.explain("open", places.out + "/a").allowed
        assert policy.explain("open", places.out + "/a", "w").rule == "write"
        assert Policy().explain("open", places.out + "/a", None, os.O_RDONLY).allowed
        explanation = policy.explain("open", places.out + "/a", "w", 0)
        assert not explanation.allowed
        assert explanation.rule == "write"
        assert type(explanation.denied) is AuditDenied
        message = f"Denied: open the file '{places.out}/a' for writing: not in '{places.ok}'"
        assert explanation.denied.message == message
        assert str(explanation) == str(explanation.denied)
        assert policy.explain("os.mkdir", places.ok + "/b", 0o777, -1).rule == "block"
        system = policy.explain("os.system", b"ls")
        assert (system.allowed, system.rule, system.denied.event) == (
            False, "commands", "os.system",
        )  # fmt: skip
        assert policy.explain("os.kill", 1, 9).rule is None
        assert policy.explain("no.such.event").allowed
        assert os.listdir(places.ok) == []

    def test_threads_that_get_the_guard(self):
        for event in ("_thread.start_new_thread", "_thread.start_joinable_thread"):
            assert Policy(threads="inherit").explain(event, print, (), None).allowed
            assert Policy(threads="inherit").explain(event, "print", (), None).allowed
            assert Policy().explain(event, print, (), None).rule == "threads"

    def test_also_under_a_guard(self, places):
        policy = Policy(write=[places.out])
        with mk_audit([places.ok], monitor_calls=False)() as guard:
            assert policy.explain("os.mkdir", places.out + "/a", 0o777, -1).allowed
            assert policy.explain("os.mkdir", places.ok + "/a", 0o777, -1).rule == "write"
        assert guard.violations == []


PATHS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
)


NAMES = st.lists(
    st.text(st.characters(exclude_characters="\0/.", exclude_categories=["Cs"]), min_size=1)
)


MODULES = st.lists(st.from_regex(r"[a-z_]+(\.[a-z]+)?", fullmatch=True))


HOSTS = st.lists(
    st.from_regex(r"(\*\.)?[a-z]+(\.[a-z]+)?\.?(:[1-9][0-9]?)?", fullmatch=True)
    | st.ip_addresses().map(str)
    | st.sampled_from(["*", "10.0.0.0/8", "[::1]:80", "fe80::/10", "10.0.0.0/8:1-2"])
)


class TestToml:
    @pytest.mark.slow
    @given(
        write=st.none() | PATHS,
        read=st.none() | PATHS,
        block=PATHS,
        protect=st.booleans() | NAMES,
        env=st.booleans() | st.lists(st.from_regex(r"[A-Z_]+\*?", fullmatch=True)),
        max_bytes=st.none() | st.integers(0, 2**63 - 1),
        import_allow=st.lists(st.from_regex(r"[a-z_]+(\.[a-z]+)?|\*", fullmatch=True)),
        threads=st.sampled_from(["deny", "inherit"]),
        unknown_events=st.sampled_from(["allow", "deny"]),
        native=st.booleans() | MODULES,
        on_violation=st.sampled_from(["raise", "warn", "log"]),
        imports=st.booleans()
        | MODULES
        | st.fixed_dictionaries({"allow": st.booleans() | MODULES, "block": MODULES}),
        network=st.booleans()
        | st.builds(
            Network,
            hosts=st.none() | HOSTS,
            block=HOSTS,
            ports=st.none() | st.lists(st.integers(0, 65535) | st.just("1-65535")),
            listen=st.booleans() | HOSTS,
            unix=st.none() | PATHS,
            lookup=st.booleans(),
            max_connections=st.none() | st.integers(0, 2**32 - 1),
            http=st.lists(st.sampled_from(["GET a.org/v1/*", "* [::1]:80/*/x"])),
        ),
        commands=st.booleans() | st.lists(st.from_regex(r"/?[a-z]+", fullmatch=True)),
    )
    def test_comes_back_from_its_toml_and_from_a_pickle(self, **fields):
        policy = Policy(**fields)
        assert Policy.parse_toml(policy.to_toml()) == policy
        assert pickle.loads(pickle.dumps(policy)) == policy
        assert eval(repr(policy)) == policy

    def test_text(self):
        assert Policy(write=[".", "~/a"]).to_toml() == (
            'write = [".", "~/a"]\nread = "anywhere"\nblock = []\nprotect = true\n'
            'max_bytes = "unlimited"\ncommands = false\nenv = false\nimport_allow = []\n'
            'threads = "deny"\nunknown_events = "allow"\nnative = false\n'
            'on_violation = "raise"\nimports = true\nnetwork = true\npackages = []\n'
        )

    def test_of_a_file(self, tmp_path):
        file = tmp_path / "policy.toml"
        file.write_text("write = ['ü']\n", encoding="utf-8")
        for path in (file, str(file), os.fsencode(file)):
            assert Policy.from_toml(path) == Policy(write=["ü"])

    def test_of_a_pyproject(self, tmp_path):
        file = tmp_path / "pyproject.toml"
        file.write_text("[project]\nname = 'x'\n[tool.fastaudit]\nread = []\n")
        assert Policy.from_toml(file) == Policy(read=[])
        file.write_text("[project]\nname = 'x'\n")
        with pytest.raises(ValueError, match=r"pyproject.toml: has no section \[tool.fastaudit\]"):
            Policy.from_toml(file)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("wirte = []", 'has the unknown key "wirte": the keys are write, read, block, protect'),
            ("write = 1", 'write must be "anywhere" or an array of paths, not integer'),
            ("read = 'x'", 'read must be "anywhere" or an array of paths, not "x"'),
            ("block = true", "block must be an array of paths, not boolean"),
            ("block = [1]", r"block\[0\] must be a path, a string, not integer"),
            ("protect = 1", "protect must be true, false or an array of names, not integer"),
            ("env = 1", "env must be true, false or an array of names, not integer"),
            ("env = [true]", r"env\[0\] must be a name, a string, not boolean"),
            ("env = ['']", r"env\[0\] must be the name of a variable"),
            ("commands = 1", "commands must be true, false or an array of programs, not integer"),
            (
                "commands = [1]",
                r"commands\[0\] must be a program's name or path, a string, not int",
            ),
            ("network = 'no'", "network must be true, false or a table of rules, not string"),
            (
                "[network]\nhosts = 1",
                'network.hosts must be "anywhere" or an array of hosts, not i',
            ),
            ("[network]\nhosts = ['a b']", r"network.hosts\[0\] must be a host name"),
            ("[network]\nhost = []", 'has the unknown key "network.host": the keys are hosts, bl'),
            ("[network]\nports = [0.5]", r"network.ports\[0\] must be a port from 0 to 65535 or"),
            ("[network]\nports = 80", 'network.ports must be "any" or an array of ports, not int'),
            ("[network]\nlookup = 1", "network.lookup must be true or false, not integer"),
            (
                '[network]\nhttp = ["a.org/"]',
                r"network.http\[0\] must be a method, a host and",
            ),
            ("[network]\nmax_connections = -1", 'network.max_connections must be "unlimited" or'),
            ("[network]\nunix = ['']", r"network.unix\[0\] must not be empty"),
            ("max_bytes = true", 'max_bytes must be "unlimited", a number of bytes or a size'),
            ("threads = 1", 'threads must be "deny" or "inherit", not integer'),
            ("imports = 1", "imports must be true, false, an array of modules or a table of allow"),
            ("[imports]\nx = 1", 'has the unknown key "imports.x": the keys are allow, block'),
            ("on_violation = 'x'", 'on_violation must be "raise" or "warn" or "log", not "x"'),
            ("native = 'x'", 'native must be true, false, "unjudged" or an array of names'),
            ("write = ['']", r"write\[0\] must not be empty"),
            ("write = [", "is not TOML: TOML parse error at line 1"),
        ],
    )
    def test_errors_name_file_key_and_what_is_accepted(self, tmp_path, text, message):
        file = tmp_path / "policy.toml"
        file.write_text(text)
        with pytest.raises(ValueError, match=f"policy.toml: {message}"):
            Policy.from_toml(file)

    def test_a_function_is_no_toml(self):
        policy = Policy(write=["a"], on_violation=print)
        with pytest.raises(ValueError, match="on_violation is a function, which TOML cannot hold"):
            policy.to_toml()
        assert pickle.loads(pickle.dumps(policy)) == policy
        assert policy != Policy(write=["a"], on_violation=repr)
        assert policy != Policy(write=["a"])
        assert policy.replace(on_violation="raise") == Policy(write=["a"])

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Policy.from_toml(tmp_path / "none.toml")

    @pytest.mark.parametrize("path", [1, True, None, 2.5])
    def test_a_descriptor_is_no_path(self, path):
        with pytest.raises(TypeError, match="path must be a str, bytes or os.PathLike, not"):
            Policy.from_toml(path)
        os.fstat(1)

    def test_reading_a_file_is_reading(self, under, tmp_path):
        """A guard has its say."""
        file = tmp_path / "policy.toml"
        file.touch()
        assert under(Policy.from_toml, file, block=[tmp_path]).rule == "block"
