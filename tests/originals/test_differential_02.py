"""The same event under fastaudit 0.2.10 and under `fastaudit_rs.v02`: as `test_differential.py`."""

import os
import sys

import peers
import pytest
from differential_cases_02 import DIFFERENCES, EVENTS, SHAPES_02, explanations
from test_differential import (
    NONE,
    Worker,
    asking,
    compare_all,
    documented,
    example,
    examples,
    requests,
    tree as tree,
)

if sys.version_info < (3, 11):
    pytest.skip("0.2.10 raises AttributeError in place of any denial", allow_module_level=True)


@pytest.fixture(scope="module")
def ask(tree):
    """`ask(request)`: the verdicts of the original and of ours."""
    original = Worker("fastaudit", tree, python=peers.python())
    with asking(original, Worker("fastaudit_rs.v02", tree)) as ask_both:
        yield ask_both


@pytest.mark.nightly
def test_verdicts_and_messages_agree(ask, tree):
    compare_all(ask, tree, requests(tree, tuple(EVENTS), SHAPES_02), EVENTS, explanations)


def examples_02(tree):
    """For each difference, cases where the verdicts differ, and whether ours allows them."""
    inside, outside = f"{tree}/ok/new", f"{tree}/out/new"
    entering = f"{tree}/out/enter"
    return {
        **examples(tree),
        # The others it denies, or allows, as well.
        "landing": examples(tree)["landing"][:4],
        "attributes": [(example(tree, "object.__setattr__", "a", "__type_params__", 1), True)],
        "malformed-event": [
            (example(tree, "os.mkdir"), False),
            (example(tree, "open"), False),
            (example(tree, "os.rename", inside), False),
            (example(tree, "os.putenv"), False),
            (example(tree, "open", outside, NONE, NONE), False),
        ],
        "overridden-str": [
            (example(tree, "os.mkdir", {"overridden": [outside, inside]}), False),
        ],
        "failing-repr": [(example(tree, "os.system", {"unshowable": None}), False)],
        "harmless-event": [
            (example(tree, "sys.set_asyncgen_hook_firstiter"), True),
            (example(tree, "ctypes.create_string_buffer", 1, 1), True),
        ],
        "removed-variable": [
            (example(tree, "os.unsetenv", "PATH"), True),
            (example(tree, "os._clearenv"), True),
        ],
        "own-path": [
            (example(tree, "os.remove", entering), False),
            (example(tree, "os.rename", entering, inside, -1, -1), False),
        ],
        "asked-twice": [(example(tree, "os.mkdir", {"liar": [outside, inside]}), False)],
    }


@pytest.mark.parametrize("name", DIFFERENCES)
def test_difference_is_real(ask, tree, name):
    for request, allowed in examples_02(tree)[name]:
        original, ours = ask(request)
        assert original != ours, request
        assert (ours is None) == allowed, (request, ours)
        assert explanations(request, original, ours, tree) == [name], (request, original, ours)


@pytest.mark.parametrize(
    ("event", "args"),
    [
        ("open", ("PLACE", None, os.O_RDWR)),
        ("os.chmod", ("PLACE", 0o700, -1)),
        ("os.rmdir", ("PLACE", -1)),
        ("os.chdir", ("PLACE",)),
    ],
)
def test_a_root_approves_its_own_entry(ask, tree, event, args):
    args = [{"none": None} if arg is None else arg for arg in args]
    for place, allowed in (("ok", True), ("out", False)):
        given = [f"{tree}/{place}" if arg == "PLACE" else arg for arg in args]
        original, ours = ask(example(tree, event, *given))
        assert ours == original
        assert (ours is None) == allowed


def test_documented_differences_are_these():
    assert documented("From both releases", "From 0.2.10 only") == sorted(DIFFERENCES)
