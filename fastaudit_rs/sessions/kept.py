"""What lasts of a session, where its code runs: data by value, the rest by its source.

Imports, functions and classes are kept as the text of the statements that made them, as long as
their names hold what these made.
"""

import ast
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from .forms import NotData, TooLarge, class_name, limited, told
from .record import MOST as WHOLE, NAMES, is_name
from .values import pack, unpack

#: The bytes of a record, the statements for one name, and the characters of a reason.
MOST, STATEMENTS, REASON = 64 << 20, 100, 200

#: Types whose values are kept by value, whatever made them: they change after an import too.
_DATA = {type(None), bool, int, float, complex, str, bytes, bytearray}
_DATA |= {list, tuple, dict, set, frozenset}

_MAY_DEFINE = re.compile(r"\b(import|def|class)\b")
_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_FUTURE = "from __future__ import annotations\n"
_MISSING = object()

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef
_Names = dict[str, Any]


class Definitions:
    """The statements that made what names hold, in the order of the last ones."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[object, tuple[str, ...]]] = {}

    def now(self) -> "Definitions":
        """A copy, which later steps do not change."""
        copy = Definitions()
        copy._of = dict(self._of)
        return copy

    def note(self, code: str, file: str, before: _Names, names: _Names) -> None:
        """Note what a step has made: also one that failed.

        Args:
            code: The code of the step.
            file: The name of its code objects.
            before: The callables and modules that names held before it.
            names: The names after it.
        """
        for name, (value, _) in list(self._of.items()):
            if names.get(name, _MISSING) is not value:
                del self._of[name]
        if not _MAY_DEFINE.search(code):
            return
        tree: Any = compile(code, file, "exec", _FLAGS, dont_inherit=True)
        head = _FUTURE if _has_future(tree) else ""
        for statement, is_nested in _statements(tree.body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for one in _imports(statement):
                    value = names.get(_bound(one), _MISSING)
                    if value is not _MISSING and _imported(one) is value:
                        self.add(_bound(one), value, ast.unparse(one))
            elif isinstance(statement, _Definition):
                name = statement.name
                value = names.get(name, _MISSING)
                if value is not before.get(name, _MISSING) and _made(statement, file, value):
                    source = ast.unparse(statement) if is_nested else _lines(code, statement)
                    self.add(name, value, head + source)

    def add(self, name: str, value: object, source: str) -> None:
        held, sources = self._of.get(name, (_MISSING, ()))
        if held is not value:
            # Moved to the end: it may need names that were defined since.
            self._of.pop(name, None)
            sources = ()
        # `import a.b` and `import a.c` both bind `a`.
        if source not in sources:
            self._of[name] = value, (*sources, source)[-STATEMENTS:]

    def of(self, name: str, value: object) -> tuple[str, ...]:
        held, sources = self._of.get(name, (_MISSING, ()))
        return sources if held is value else ()

    def order(self) -> list[str]:
        return [*self._of]


def before(names: Mapping[Any, object]) -> _Names:
    """The names that hold what a statement might have made."""
    return {
        name: value
        for name, value in list(names.items())
        if type(name) is str and (callable(value) or issubclass(type(value), ModuleType))
    }


def _has_future(tree: ast.Module) -> bool:
    return any(
        isinstance(one, ast.ImportFrom)
        and one.module == "__future__"
        and any(alias.name == "annotations" for alias in one.names)
        for one in tree.body
    )


def _statements(body: list[ast.stmt], is_nested: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements that run in the namespace of a step, also those in others of them."""
    for statement in body:
        yield statement, is_nested
        if isinstance(statement, _Definition):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []), True)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _statements(part.body, True)


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[ast.Import | ast.ImportFrom]:
    """The statement as one for each name."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield ast.Import([alias])
        elif not statement.level and alias.name != "*":
            yield ast.ImportFrom(statement.module, [alias], 0)


def _bound(one: ast.Import | ast.ImportFrom) -> str:
    alias = one.names[0]
    return alias.asname or alias.name.partition(".")[0]


def _imported(one: ast.Import | ast.ImportFrom) -> object:
    """What the import of a name would give now, without importing anything."""
    alias = one.names[0]
    if isinstance(one, ast.Import):
        return sys.modules.get(alias.name if alias.asname else _bound(one), _MISSING)
    module = sys.modules.get(one.module or "")
    try:
        return getattr(module, alias.name)
    except Exception:
        return sys.modules.get(f"{one.module}.{alias.name}", _MISSING)


def _made(statement: _Definition, file: str, value: Any) -> bool:
    """True if a new value may be the one of this statement, and not of another."""
    kind = type(value)
    if statement.decorator_list:
        return callable(value) and kind not in _DATA
    if isinstance(statement, ast.ClassDef):
        return issubclass(kind, type) and class_name(value).rpartition(".")[2] == statement.name
    if kind is not FunctionType:
        return False
    code = value.__code__
    return bool(code.co_filename == file and code.co_firstlineno == statement.lineno)


def _lines(code: str, statement: _Definition) -> str:
    """The lines of a definition as they were written, with its decorators."""
    first = min([statement.lineno, *(one.lineno for one in statement.decorator_list)])
    # `StringIO` splits lines as Python's parser does; `splitlines` splits at more characters.
    return "".join(io.StringIO(code).readlines()[first - 1 : statement.end_lineno])


# A record: the statements with their names, values by name, and what is lost.


def record(names: _Names, wanted: list[str], own: Mapping[str, object], made: Definitions) -> bytes:
    """Return what lasts of the names that steps have given values, packed for the host."""
    sources: dict[str, tuple[str, ...]] = {}
    values: dict[str, bytes] = {}
    lost: dict[str, str] = {}
    room, interrupts = MOST, 0
    if len(wanted) > NAMES:
        raise NotData(f"the session has {len(wanted)} names, of at most {NAMES} in a record")
    for name in wanted:
        value = names.get(name)
        if name in own or not is_name(name):
            continue
        found = made.of(name, value) if type(value) not in _DATA else ()
        data = b""
        if not found:
            try:
                data = pack(value, place=name, most=room, exact=True)
            except TooLarge as error:
                lost[name] = f"too large: {error.least}, of at most {MOST >> 20} MB in all"
                continue
            except BaseException as error:
                interrupts += issubclass(type(error), KeyboardInterrupt)
                if interrupts > 1:
                    # The second one is the time limit's; the first may be the object's own.
                    raise
                found = _importable(name, value)
                if not found:
                    lost[name] = _reason(name, value, error)
                    continue
        size = len(data) + sum(map(len, found)) + len(name)
        if size > room:
            lost[name] = f"too large: {size / (1 << 20):.1f} MB, of at most {MOST >> 20} MB in all"
            continue
        room -= size
        if found:
            sources[name] = found
        else:
            values[name] = data
    order = dict.fromkeys([*(sources.keys() - {*made.order()}), *made.order()])
    told_sources = [[name, source] for name in order for source in sources.get(name, ())]
    parts = {"sources": told_sources, "values": values, "lost": lost}
    return pack(parts, arrays=False, most=WHOLE)


def _importable(name: str, value: Any) -> tuple[str, ...]:
    """The import that gives a module, a function or a class; none if there is no such import."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        modules = [one for one, module in list(sys.modules.items()) if module is value]
        return tuple(f"import {one} as {name}" for one in modules[:1] if one != "__main__")
    if kind in (FunctionType, BuiltinFunctionType):
        module, own = value.__module__, value.__name__
    elif issubclass(kind, type):
        module, _, own = class_name(value).rpartition(".")
        module = module or "builtins"
    else:
        return ()
    there = sys.modules.get(module) if type(module) is str and module != "__main__" else None
    is_there = type(there) is ModuleType and vars(there).get(own, _MISSING) is value
    return (f"from {module} import {own} as {name}",) if is_there else ()


def _reason(name: str, value: Any, error: BaseException) -> str:
    kind = type(value)
    if kind is FunctionType:
        is_lambda = value.__code__.co_name == "<lambda>"
        return "a lambda" if is_lambda else "a function that no statement of a step made"
    if issubclass(kind, io.IOBase):
        return "a file"
    if type(error) is NotData:
        words = str(error).partition(", which cannot be passed by value")[0]
        return limited(words.removeprefix(f"{name} is "), REASON)
    return limited(told(error), REASON)


def restore(
    body: bytes | memoryview, names: _Names, own: Mapping[str, object], made: Definitions, show: Any
) -> dict[str, str]:
    """Give names what a record has; return what is lost, with the reasons.

    Args:
        body: The statements and values, packed by the host.
        names: The names, which are those of the session alone.
        own: What the session has given, which no record replaces.
        made: Where the statements are noted.
        show: A function that notes the lines of a statement for tracebacks, under a file's name.
    """
    given = unpack(body, arrays=False, own=True)
    lost: dict[str, str] = {}
    values: _Names = {}
    held = dict(names)
    for name, data in given["values"].items():
        try:
            values[name] = unpack(data)
        except Exception as error:
            lost[name] = limited(told(error), REASON)
    names.update(values)
    numbered = list(enumerate(given["sources"], 1))
    # Those that fail are tried once more: a name that they need may have been defined after them.
    failed = _run(_run(numbered, names, made, show), names, made, show)
    lost |= {name: limited(why, REASON) for _, (name, _), why in failed}
    # Statements may have replaced values: the values count.
    names.update(values)
    for name, value in held.items():
        is_special = name.startswith("__")
        if (name in own or is_special) and names.get(name, _MISSING) is not value:
            names[name] = value
            if not is_special:
                lost[name] = "the session has it"
    return lost


def _run(
    statements: Iterable[Any], names: _Names, made: Definitions, show: Any
) -> list[tuple[int, tuple[str, str], str]]:
    """Run statements of a record; return those that fail, with the reasons."""
    failed = []
    is_interrupted = False
    for number, (name, source), *_ in statements:
        file = f"<kept {number}>"
        try:
            if is_interrupted:
                raise KeyboardInterrupt
            code = _checked(name, source, file)
            show(file, source)
            exec(code, names)
            made.add(name, names[name], source)
        except BaseException as error:
            is_interrupted = is_interrupted or issubclass(type(error), KeyboardInterrupt)
            failed.append((number, (name, source), told(error)))
    return failed


def _checked(name: str, source: str, file: str) -> Any:
    """Compile a statement of a record; `ValueError` if it is not what it is said to be."""
    tree: Any = compile(source, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    body = tree.body[_has_future(tree) and len(tree.body) > 1 :]
    [statement] = body if len(body) == 1 else [None]
    is_one = isinstance(statement, _Definition) and statement.name == name
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        is_one = [_bound(one) for one in _imports(statement)] == [name]
    if not is_one:
        raise ValueError("it is no import and no definition of this name")
    return compile(tree, file, "exec", dont_inherit=True)
