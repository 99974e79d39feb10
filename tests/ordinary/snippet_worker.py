"""Runs one snippet under one guard, in a process of its own, and says what it saw of it.

Started by `corpus.py` with a JSON request as its argument; the report goes to the file that the
request names.
"""

import ast
import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import types

BARE = "bare"


class Missing(Exception):
    """A package is not there."""


def factory(guard, denials, original=None, allow_all=False, **options):
    """A factory of guards of a kind.

    `denials` takes note of what they deny where they do not tell it themselves. With `allow_all`
    the host's callbacks let all pass.
    """
    if guard == BARE:
        return contextlib.nullcontext
    if original:
        # Last, so that what it came with hides nothing.
        sys.path.append(original)
        mk_audit = importlib.import_module("fastaudit").mk_audit
    else:
        module = "fastaudit_rs.v02" if guard == "v02.mk_audit" else "fastaudit_rs"
        mk_audit = importlib.import_module(module).mk_audit
    if allow_all:
        options |= {"before_deny": lambda *_: True, "on_call": lambda *_: False}
    elif original:

        def before_deny(event, args, *_):
            denials.append(f"call {args[1]}" if event == "fastaudit.call" else event)
            return False

        options |= {"before_deny": before_deny}
    if guard.startswith("preset "):
        policy = importlib.import_module("fastaudit_rs").Policy.preset(
            guard.removeprefix("preset ")
        )
        return policy.guard(**options)
    if guard == "packages=data":
        options |= {"packages": "data"}
    return mk_audit(["."], **options)


def imports_of(code):
    """The imports with which a program begins, as code."""
    lines = []
    for statement in ast.parse(code).body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            lines.append(ast.unparse(statement))
    return "\n".join(lines)


def main_module(url):
    """A fresh main module for a snippet, where its functions are found when they are pickled."""
    main = types.ModuleType("__main__")
    main.URL = url
    sys.modules["__main__"] = main
    return main


def prepared(request):
    """The main module of the snippet, with its imports made where they come before."""
    for package in request["snippet"]["packages"]:
        if importlib.util.find_spec(package) is None:
            raise Missing(f"no module named {package!r}")
    main = main_module(request["url"])
    if request["when"] == "before":
        # Known since then, as in a host that has used it.
        tempfile.gettempdir()
        for line in imports_of(request["snippet"]["code"]).splitlines():
            # A module that the snippet is yet to write cannot be.
            with contextlib.suppress(ModuleNotFoundError):
                exec(line, main.__dict__)
    return main


def told(denied):
    """A denial in a few words: the event or the callee, the rule, and what is not approved."""
    what = f"call {denied.callee}" if denied.callee else denied.event
    rule = f" ({denied.rule})" if denied.rule else ""
    detail = denied.path or denied.host or denied.command
    return f"{what}{rule}: {detail}" if detail else f"{what}{rule}"


def run(request):
    """Run it; returns the report."""
    denials, raised = [], None
    try:
        main = prepared(request)
        make = factory(request["guard"], denials, request["original"])
    except Missing as missing:
        return {"missing": str(missing)}
    code = compile(request["snippet"]["code"], "<snippet>", "exec")
    with make() as guard:
        try:
            exec(code, main.__dict__)
        except BaseException as error:
            raised = f"{type(error).__name__}: {error}".split("\n")[0]
    denials += [told(denied) for denied in getattr(guard, "violations", ())]
    return {"raised": raised, "denials": denials}


def main():
    """Run the request, and write the report as one."""
    request = json.loads(sys.argv[1])
    directory = os.getcwd()
    report = run(request)
    os.chdir(directory)
    with open(request["report"] + ".part", "w") as file:
        json.dump(report, file)
    os.rename(request["report"] + ".part", request["report"])


if __name__ == "__main__":
    main()
