"""Guards that begin and end in many threads at once, with calls watched from either side."""

import functools
import random
import sys

import at_once
import pytest

from fastaudit_rs import AuditDenied, Policy

THREADS = 8


def at_random(calls, wrong, side, number):
    chosen = random.Random(number)
    for _ in range(300):
        allowed = chosen.choice(["numpy", "lxml"])
        with Policy(native=[allowed]).guard(calls=side)():
            for package in chosen.sample(list(calls), 2):
                try:
                    calls[package]()
                except AuditDenied:
                    is_allowed = False
                else:
                    is_allowed = True
                if is_allowed != (package == allowed):
                    wrong.append((allowed, package, is_allowed))


@pytest.mark.parametrize("side", ["events", "callee"])
def test_each_judges_its_own(side):
    if side == "events" and sys.version_info < (3, 12):
        pytest.skip("no sys.monitoring")
    numpy, etree = pytest.importorskip("numpy"), pytest.importorskip("lxml.etree")
    calls = {"numpy": lambda: numpy.zeros(1), "lxml": lambda: etree.fromstring("<a/>")}
    wrong = []
    works = [functools.partial(at_random, calls, wrong, side, number) for number in range(THREADS)]
    at_once.run(*works)
    assert wrong == []
