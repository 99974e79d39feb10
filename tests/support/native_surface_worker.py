"""Pokes at all that guarded code can reach of the guard: see `test_native_surface.py`.

    native_surface_worker.py OK OUT SEED POKES

Ends with status 0 where the guard held, and 1 with what was done last where it did not. Each poke
is written to the error stream before it is made where `POKES_SHOWN` is set.
"""

import atexit
import contextlib
import contextvars
import copy
import gc
import io
import operator
import os
import random
import signal
import sys
import threading
import types
import weakref

import fastaudit_rs
from fastaudit_rs import AuditDenied, Network, Policy, _native, mk_audit, v02

OK, OUT, SEED, POKES = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
# Of so many a probe is made, and the objects are looked for again.
ROUND = 250
SHOWN = bool(os.environ.get("POKES_SHOWN"))

# The functions that this uses, as they are now: what is poked at may replace them.
_open, _type, _getattr = open, type, getattr
_exit, _write = os._exit, os.write
chance = random.Random(SEED)
last = []


def is_a(one, kinds):
    """`isinstance` that does not ask the object."""
    return any(kind in kinds if is_many(kinds) else kind is kinds for kind in _type(one).__mro__)


def is_many(kinds):
    return _type(kinds) is tuple


class Odd:
    """Answers everything, and differently."""

    def __index__(self):
        return chance.choice([0, -1, 1 << 70, 3])

    def __fspath__(self):
        return chance.choice([OK + "/x", OUT + "/x"])

    def __eq__(self, other):
        return chance.random() < 0.5

    def __hash__(self):
        return 1

    def __call__(self, *args, **kwargs):
        return chance.choice([None, self, args])

    def __iter__(self):
        return iter([self])

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return True

    def __get__(self, instance, owner=None):
        return self

    def __bool__(self):
        raise ValueError


class Failing(Odd):
    def __getattribute__(self, name):
        raise KeyError(name)


class Text(str):
    def __fspath__(self):
        return OUT + "/x"

    __str__ = __repr__ = __fspath__


def poked():
    """A function for what takes one."""


SLOTS = [
    name
    for made in (object, type, int, dict, list, str, types.FunctionType, types.GeneratorType)
    for name in dir(made)
    if name.startswith("__")
]
SLOTS += """
__enter__ __exit__ __aenter__ __aexit__ __await__ __aiter__ __anext__ __next__ __iter__ __del__
__get__ __set__ __delete__ __set_name__ __setstate__ __getstate__ __copy__ __deepcopy__ __reduce__
__reduce_ex__ __getnewargs__ __getnewargs_ex__ __init_subclass__ __class_getitem__ __fspath__
__buffer__ __release_buffer__ __length_hint__ __missing__ __reversed__ __traverse__ __clear__
__abstractmethods__ __slots__ __weakref__ __dict__ __class__ __bases__ __mro__ mro __wrapped__
""".split()
SLOTS = sorted(set(SLOTS))
# Functions that end or hold up the process by themselves, whoever calls them.
HARMLESS_NOT = {
    *("enter_worker", "_use_tracker", "install", "wait", "confine", "_hold_sockets"),
    # CPython's own getter and setter for it makes `object` itself abstract.
    "__abstractmethods__",
}


def is_ours(one):
    module = _type(one).__dict__.get("__module__")
    if module in ("fastaudit_rs._native", "fastaudit_rs"):
        return True
    if not is_a(one, _type):
        return False
    try:
        return type.__dict__["__module__"].__get__(one) in OUR_MODULES
    except AttributeError:
        # A poke has deleted it.
        return False


OUR_MODULES = ("fastaudit_rs._native", "fastaudit_rs.denied", "fastaudit_rs")


def reach(guards):
    """The objects of ours that are reached from the package and from guards in force."""
    found, seen = [], set()
    todo = [*guards, *vars(_native).values(), *vars(fastaudit_rs).values(), *vars(v02).values()]
    context = contextvars.copy_context()
    todo += [*context, *context.values(), sys._getframe()]
    todo += [one for one in gc.get_objects() if is_ours(one)]
    depth = 0
    while todo and depth < 4:
        depth += 1
        later = []
        for one in todo:
            if id(one) in seen or one is seen:
                continue
            seen.add(id(one))
            if is_ours(one) or (
                is_a(one, types.BuiltinFunctionType)
                and _getattr(one, "__module__", None) in OUR_MODULES
            ):
                found.append(one)
                later += gc.get_referents(one)
                dictionary = _getattr(_type(one), "__dict__", {})
                later += [
                    value
                    for value in dictionary.values()
                    if not is_a(value, (str, int, type(None)))
                ]
                found += [
                    value
                    for value in dictionary.values()
                    if _type(value).__name__
                    in ("method_descriptor", "getset_descriptor", "wrapper_descriptor")
                ]
            elif is_a(one, (types.FrameType, contextvars.Context)):
                later += gc.get_referents(one)
        todo = later
    return found


def arguments(objects):
    odd = [
        None, 0, -1, 1 << 70, 1.5, "", "x", b"x", OUT, OUT + "/x", OK + "/x", Text(OK + "/x"),
        (), [], {}, set(), Odd(), Failing(), Odd, object, type, object(), poked, len, print,
        ValueError, ValueError("x"), True, ..., NotImplemented, range(3), memoryview(b"x"),
        "open", ["open"], {"x": Odd()}, (OUT,), [OK, OUT], sys, types.SimpleNamespace(),
    ]  # fmt: skip
    given = [chance.choice(odd) for _ in range(chance.choice([0, 0, 1, 1, 2, 3, 4]))]
    return [chance.choice(objects) if chance.random() < 0.25 else one for one in given]


def names_of(one):
    try:
        return dir(one) or SLOTS
    except BaseException:
        return SLOTS


def call(objects, one, name, given):
    _getattr(one, name)(*given)


def call_on_another(objects, one, name, given):
    method = _getattr(_type(one), name)
    method(chance.choice([*objects, *given, None]), *given)


def call_itself(objects, one, name, given):
    one(*given)


def call_with_names(objects, one, name, given):
    one(**{chance.choice(["write", "oks", "name", "x", "roots"]): value for value in given})


def look_up(objects, one, name, given):
    _getattr(one, name)


def set_one(objects, one, name, given):
    setattr(one, name, given[0] if given else None)


def delete_one(objects, one, name, given):
    delattr(one, name)


def set_by_type(objects, one, name, given):
    chance.choice([object, type]).__setattr__(one, name, given[0] if given else None)


def set_by_descriptor(objects, one, name, given):
    found = chance.choice([type.__dict__, object.__dict__, _type(one).__dict__])[name]
    found.__set__(one, given[0] if given else None)


def make_by_another(objects, one, name, given):
    made = one if is_a(one, _type) else _type(one)
    base = chance.choice([object, type, dict, Exception, BaseException, made])
    made = base.__new__(made, *given)
    objects.append(made)


def make_anew(objects, one, name, given):
    made = one if is_a(one, _type) else _type(one)
    made.__new__ = given[0] if given else None
    objects.append(object.__new__(made))


def derive(objects, one, name, given):
    made = one if is_a(one, _type) else _type(one)
    body = {chance.choice(SLOTS): chance.choice([*given, None, poked]) for _ in range(3)}
    made = type("Derived", chance.choice([(made,), (made, Odd), (Odd, made)]), body)
    objects.append(made)


def change_class(objects, one, name, given):
    other = chance.choice([*objects, *given])
    one.__class__ = other if is_a(other, _type) else _type(other)


def initialise(objects, one, name, given):
    _type(one).__init__(one, *given)


def copy_one(objects, one, name, given):
    function = chance.choice([copy.copy, copy.deepcopy])
    function(one)


def reduce_one(objects, one, name, given):
    made, *state = one.__reduce_ex__(chance.randrange(6))
    made(*state[0])


def put_into_its_dictionary(objects, one, name, given):
    made = one if is_a(one, _type) else _type(one)
    if not is_ours(made):
        # CPython's own objects do not stand that.
        return
    dictionary = gc.get_referents(made.__dict__)[0]
    if chance.random() < 0.7:
        dictionary[name] = given[0] if given else poked
    else:
        del dictionary[name]
    if chance.random() < 0.1:
        sys._clear_type_cache()


def operate(objects, one, name, given):
    binary = [
        operator.add, operator.or_, operator.eq, operator.lt, operator.getitem, operator.contains,
        operator.delitem, operator.iadd, operator.matmul, operator.is_, operator.concat,
        operator.call if hasattr(operator, "call") else operator.eq,
    ]  # fmt: skip
    chance.choice(binary)(one, given[0] if given else one)


def convert(objects, one, name, given):
    functions = [
        repr, str, bytes, hash, len, bool, int, float, iter, next, dir, vars, id, format, ascii,
        list, tuple, dict, operator.index, os.fspath, memoryview, callable, weakref.ref,
        sys.getsizeof, gc.get_referents, gc.get_referrers, gc.is_tracked, gc.is_finalized, reversed,
    ]  # fmt: skip
    chance.choice(functions)(one)


def enter(objects, one, name, given):
    with one:
        if chance.random() < 0.5:
            raise KeyError


def drive(objects, one, name, given):
    made = one.__await__() if hasattr(one, "__await__") else iter(one)
    for _ in range(3):
        next(made)


def in_another_context(objects, one, name, given):
    context = chance.choice([contextvars.Context(), contextvars.copy_context()])
    context.run(_getattr(one, name), *given)


def set_variable(objects, one, name, given):
    variables = [var for var in contextvars.copy_context() if "fastaudit" in var.name]
    value = chance.choice([*given, None, *objects])
    chance.choice(variables).set(value)


def bind(objects, one, name, given):
    types.MethodType(_getattr(one, name), given[0] if given else one)()


def by_slot(objects, one, name, given):
    function = _getattr(one, name)
    _type(function).__call__(function, *given)


def collect(objects, one, name, given):
    objects.remove(one)
    del one
    gc.collect(0)


def clear(objects, one, name, given):
    chance.choice([sys._getframe(), sys._getframe(1)]).clear()


DEEDS = [
    (call, 20), (call_on_another, 10), (call_itself, 6), (call_with_names, 4), (look_up, 6),
    (set_one, 6), (delete_one, 4), (set_by_type, 4), (set_by_descriptor, 6), (make_by_another, 6),
    (make_anew, 3), (derive, 4), (change_class, 3), (initialise, 3), (copy_one, 2),
    (reduce_one, 2), (operate, 6),
    (put_into_its_dictionary, 6), (convert, 6), (enter, 4), (drive, 2), (in_another_context, 4),
    (set_variable, 2), (bind, 3), (by_slot, 5), (collect, 1), (clear, 1),
]  # fmt: skip
EACH = [deed for deed, _ in DEEDS]
WEIGHTS = [weight for _, weight in DEEDS]


def poke(objects):
    one = chance.choice(objects)
    if not is_ours(one) and chance.random() < 0.7:
        # Methods are many.
        one = chance.choice(objects)
    (deed,) = chance.choices(EACH, WEIGHTS)
    name = chance.choice(SLOTS) if chance.random() < 0.4 else chance.choice(names_of(one))
    given = arguments(objects)
    if name in HARMLESS_NOT or own_name(one) in HARMLESS_NOT:
        return
    last[:] = [deed.__name__, safe_repr(one), name, [safe_repr(value) for value in given]]
    if SHOWN:
        _write(2, (" ".join(map(str, last)) + "\n").encode("utf-8", "replace"))
    with contextlib.suppress(BaseException):
        deed(objects, one, name, given)


def own_name(one):
    try:
        return _getattr(one, "__name__", None)
    except BaseException:
        # What a poke has derived may fail as it is asked.
        return None


def safe_repr(one):
    made = one if is_a(one, _type) else _type(one)
    name = type.__dict__["__qualname__"].__get__(made)
    return f"class {name}" if made is one else name


def holds():
    """A file outside cannot be written."""
    try:
        _open(OUT + "/probe", "w").close()
    except AuditDenied:
        return True
    except BaseException as error:
        # The guard failed to make its own exception: it holds all the same.
        return not os.path.exists(OUT + "/probe") or fail(f"probe: {error!r}")
    return False


def fail(why):
    _write(2, f"seed {SEED}: {why}; last: {last}\n".encode("utf-8", "replace"))
    _exit(1)


def host(factories):
    """Each guard holds that a host makes between guarded code."""
    for make in factories:
        with make():
            if not holds():
                fail("a later guard does not hold")
    if holds():
        fail("a guard is in force after its block")
    os.remove(OUT + "/probe")


def main():
    signal.alarm(600)
    sys.unraisablehook = lambda *_: None
    threading.excepthook = lambda *_: None
    sys.stdout = io.StringIO()
    data = {"host": 1}
    # Objects that are poked at may tell hosts, and ask for what they let pass.
    policy = Policy(write=[OK], network=Network(hosts=["example.com"]))
    factories = [
        mk_audit([OK], data=data),
        policy.guard(),
        v02.mk_audit([OK], data=data),
        policy.replace(max_bytes=1 << 30).guard(),
    ]
    done = 0
    while done < POKES:
        make = chance.choice(factories)
        try:
            with make() as guard:
                objects = reach([guard, make, policy, *factories])
                try:
                    os.mkdir(OUT + "/x")
                except AuditDenied as denied:
                    objects += [denied, denied._denial]
                for _ in range(ROUND):
                    poke(objects)
                    done += 1
                    if done % 50 == 0 and not holds():
                        fail("the guard is lifted")
                if not holds():
                    fail("the guard is lifted")
        except RuntimeError as error:
            # It said so itself: poked at, it was left in this very frame.
            fail(f"left early: {error}")
        del objects
        host(factories)
    gc.collect()
    host(factories)
    atexit._clear()
    _write(1, f"{done} pokes\n".encode())


main()
