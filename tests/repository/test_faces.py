"""Signatures of `src`: no safe function takes a raw pointer, or invents a lifetime.

Clippy's `not_unsafe_ptr_arg_deref` looks at functions that other crates can call: none of these.
"""

import re

from repository import ROOT


def closing(text, start):
    """The place after the parenthesis, or angle bracket, that ends what begins at `start`."""
    pairs, depth = {"(": ")", "<": ">"}, 0
    opening = text[start]
    for place in range(start, len(text)):
        if text[place] == opening:
            depth += 1
        elif text[place] == pairs[opening] and text[place - 1] != "-":
            depth -= 1
            if depth == 0:
                return place + 1
    raise AssertionError(text[start : start + 80])


def wrong(text):
    """The safe functions of a file that take a raw pointer, or return a lifetime of no argument."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'extern "[^"]*" \{.*?\n\s*\}', "", text, flags=re.DOTALL)
    for found in re.finditer(r"([^;{}\n]*)\bfn (\w+)(?=[<(])", text):
        # A macro makes an `unsafe extern "C" fn` of a line that begins with names in C.
        if "unsafe" in found[1] or re.search(r'\[c".*\]\s*$', text[: found.start()]):
            continue
        after = found.end()
        generics = ""
        if text[after] == "<":
            generics, after = text[after : (end := closing(text, after))], end
        arguments, after = text[after : (end := closing(text, after))], end
        returned = re.match(r"[^{;]*", text[after:])[0]
        if re.search(r": \*(mut|const) ", arguments):
            yield f"{found[2]} takes a raw pointer"
        # Others hold what they borrow in a field, which must have come from an argument.
        borrowed = re.findall(r"(?:&|\b(?:Python|Bound|Borrowed|BorrowedFd)<)'(\w+)", returned)
        named = set(re.findall(r"'(\w+)", generics)) & set(borrowed)
        given = arguments + returned.partition("where")[2]
        for lifetime in named - {*re.findall(r"'(\w+)", given)}:
            yield f"{found[2]} invents '{lifetime}"


def test_safe_functions_take_no_raw_pointers_and_invent_no_lifetimes():
    found = {path: [*wrong(path.read_text())] for path in (ROOT / "src").rglob("*.rs")}
    assert len(found) > 100
    assert {path: names for path, names in found.items() if names} == {}


def test_what_is_wrong_is_found():
    text = """
        pub fn of(object: *mut PyObject) -> bool { true }
        unsafe fn is(object: *mut PyObject) -> bool { true }
        fn borrow<'fd>(number: i32) -> BorrowedFd<'fd> { todo!() }
        fn get<'a>(of: impl Fn() -> &'a str) -> &'a str { of() }
    """
    assert [*wrong(text)] == ["of takes a raw pointer", "borrow invents 'fd"]
