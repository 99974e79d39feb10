"""Guards that begin and end in many threads at once."""

import functools
import random

import at_once
import pytest

from fastaudit_rs import AuditDenied, Policy

THREADS = 8


def at_random(calls, wrong, number):
    chosen = random.Random(number)
    for _ in range(300):
        allowed = chosen.choice(list(calls))
        with Policy(native=[allowed]).guard()():
            for package, call in calls.items():
                try:
                    call()
                except AuditDenied:
                    is_allowed = False
                else:
                    is_allowed = True
                if is_allowed != (package == allowed):
                    wrong.append((allowed, package, is_allowed))


def test_each_judges_its_own():
    numpy, etree = pytest.importorskip("numpy"), pytest.importorskip("lxml.etree")
    calls = {"numpy": lambda: numpy.zeros(1), "lxml": lambda: etree.fromstring("<a/>")}
    wrong = []
    works = [functools.partial(at_random, calls, wrong, number) for number in range(THREADS)]
    at_once.run(*works)
    assert wrong == []
