"""Sentences of comments, docstrings and pages begin with a noun or a verb.

An opening such as "What", "Whether" or "Those" hides the thing that a sentence is about. Questions
may begin with one, and so may headings.
"""

import ast
import io
import re
import subprocess
import tokenize

from repository import ROOT

OPENINGS = re.compile(
    r"\b(?:What|Whether|Those|That|Has|Which|Who|Whose|How)\b(?!')"
    r"|\bIt, |\bNone (?:is|are)\b|(?<!there )\bis none\b"
)
#: Code, quoted text, a link that is called as its page is, and the address of a link.
QUOTED = re.compile(
    r"```.*?```|``[^`]*``|`[^`]*`|\"[^\"]*\"|“[^”]*”|\[(?:What|How) [^]]*\]\(|\]\([^)]*\)",
    re.DOTALL,
)
#: A comment of Rust, or a literal that may look as if it had one.
RUST = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|r(?P<hashes>#*)\".*?\"(?P=hashes)|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\\n]|\\.[^'\n]*)'",
    re.DOTALL,
)
#: A comment that begins with `#`, at the start of a line or after white space.
HASH = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)


def of_rust(text):
    """The lines of the comments, with their numbers."""
    for found in RUST.finditer(text):
        for index, line in enumerate((found["comment"] or "").split("\n")):
            yield text.count("\n", 0, found.start()) + 1 + index, line.lstrip("/!* ")


def of_python(text):
    """The lines of the comments and docstrings, with their numbers."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Expr) and isinstance(value, ast.Constant):
            for index, line in enumerate(str(value.value).split("\n")):
                yield node.lineno + index, line


def of_hashes(text):
    """The comments that begin with `#`, with the numbers of their lines."""
    for found in HASH.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0].lstrip("# ")


def of_page(text):
    """The lines of a Markdown page outside of its code and headings, with their numbers."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("#"):
            yield number, line


READERS = {
    ".rs": of_rust,
    ".py": of_python,
    ".pyi": of_python,
    ".pyx": of_hashes,
    ".toml": of_hashes,
    ".yml": of_hashes,
    "": of_hashes,
    ".md": of_page,
}


def paragraphs(lines):
    """Lines that follow each other, up to an empty one."""
    together = []
    for number, text in [*sorted(lines), (-1, "")]:
        if together and (number != together[-1][0] + 1 or not text.strip()):
            yield together
            together = []
        if text.strip():
            together.append((number, text))


def openings(path):
    """The sentences with such an opening, as `file:line: text`."""
    for together in paragraphs(READERS[path.suffix](path.read_text())):
        text = "\n".join(line for _, line in together)
        bare = QUOTED.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)
        for found in OPENINGS.finditer(bare):
            sentence = re.split(r"(?<=[.!?:])\s|\n\s*[-|]", bare[found.start() :])[0]
            if not sentence.rstrip().endswith("?"):
                number, _ = together[bare.count("\n", 0, found.start())]
                shown = " ".join(text[found.start() :].split())[:80]
                yield f"{path.relative_to(ROOT)}:{number}: {shown}"


def test_sentences_begin_with_a_noun_or_a_verb():
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [ROOT / name for name in names if not name.startswith("fuzz/corpus/")]
    paths = [path for path in paths if path.suffix in READERS and path.is_file()]
    assert len(paths) > 300
    assert [line for path in paths for line in openings(path)] == []


def test_what_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for name, text in {
        "a.rs": '/// Whether it is.\nfn f() { g("// What"); } // Those of\n// a table.\n',
        "b.py": '"""Fine.\n\n    x: What it is.\n"""\n# What is it?\n# `What` "That".\n',
        "c.md": "# What a heading may\n\nFine. That is not.\n\n```\nWhat\n```\n",
        "d.toml": "a = 1  # Has it done.\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = [line for path in sorted(tmp_path.iterdir()) for line in openings(path)]
    assert found == [
        "a.rs:1: Whether it is.",
        "a.rs:2: Those of a table.",
        "b.py:3: What it is.",
        "c.md:3: That is not.",
        "d.toml:1: Has it done.",
    ]
