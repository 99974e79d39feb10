"""A denied call of unpacked arguments frees nothing that the code still has."""

from programs import printed

#: Calls of `orjson.dumps`, and what the code has besides.
PROGRAM = """
import gc, sys
import orjson
from fastaudit_rs import mk_audit

class Each:
    def __iter__(self): return iter([3])

class Method:
    def call(self): orjson.dumps(*items)

items, each, pair, options = [[1]], Each(), ([1],), {"default": None}
def a_list(): orjson.dumps(*items)
def with_options(): orjson.dumps(*items, **options)
def a_list_of_its_own(): orjson.dumps(*[[n] for n in range(1)])
def a_generator(): orjson.dumps(*([n] for n in range(1)))
def an_iterable(): orjson.dumps(*each)
def a_tuple(): orjson.dumps(*pair)
def a_tuple_with_options(): orjson.dumps(*pair, **options)
def nothing(): orjson.dumps(*[])
def several(): orjson.dumps(*items, *pair)
def an_argument_of_itself(): return [1, orjson.dumps(orjson.dumps(*items)), 2]
def an_argument_of_others(): return max(1, 2, *[orjson.dumps(*items)])
def cells(a=1):
    b = 2
    def inner(): return a, b
    orjson.dumps(*items)
    return inner
def in_blocks():
    for n in [1]:
        with open("/dev/null"):
            orjson.dumps(*items)
def in_a_generator():
    next(orjson.dumps(*items) for n in [1])
ways = [a_list, with_options, a_list_of_its_own, a_generator, an_iterable, a_tuple,
        a_tuple_with_options, nothing, several, an_argument_of_itself, an_argument_of_others, cells,
        in_blocks, in_a_generator, Method().call]

def references():
    return [sys.getrefcount(each) for each in (items, each, pair, options)]

with mk_audit([])():
    before = references()
    for way in ways:
        for _ in range(20):
            try:
                way()
            except PermissionError:
                pass
            else:
                print(way.__name__, "passed")
        if references() != before:
            print(way.__name__, before, references())
            break
del items, each, pair, options
gc.collect()
print("ends")
"""


def test_what_was_unpacked_stays():
    assert printed(PROGRAM) == "ends\n"
