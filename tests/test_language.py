"""The package, its documentation, tests and scripts are written in plain English."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import skbayesnn

PACKAGE = Path(skbayesnn.__file__).parent
ROOT = PACKAGE.parent

# Regular expressions, and better words. A space matches any white space, including a
# line break. A thing shows, means or contains something, but does not say it.
BANNED = {
    r"\banew\b": "again",
    r"\bbeside\b": "next to, in addition to",
    r"\bwhoever\b": "users who, if you",
    r"\b(?:says|said|tells|told)\b": "shows, means, contains",
    r"\bsay (?:nothing|anything|something|which|what|how|of|so)\b": (
        "show, contain, mean"
    ),
    r"\b(?:rows|numbers|columns|files|data|tables) (?:say|tell|ask|know)s?\b": (
        "show, contain, require"
    ),
    r"\basked of\b": "required of",
    r"\bknows? (?:no|of|nothing)\b": "has no, does not depend on",
    r"\bby (?:itself|themselves)\b": "alone, without",
    r"\bof (?:fewer|less) than\b": "with fewer than",
    r"\bso many (?:at|candidate|column|draw|member|network|of|row|time|value)s?\b": (
        "n, this number of"
    ),
    r"\bnumbers of y\b": "values of y",
    r"\bgaps in (?:X|y|the (?:columns?|features?|rows|table))\b": "missing values in",
    r"\bhand(?:s|ed|ing)? (?:it |them )?(?:on|over|out)\b": "passes, returns",
    r"\blet(?:s|ting)? (?:it |them )?go\b": "releases",
    r"\b(?:ones?|all) that there (?:is|are)\b": "the noun itself",
    r"\bwhat there is\b": "the noun itself",
    r"\bof which (?:all|each|is|it|none|only|they)\b": (
        "a second sentence with the noun"
    ),
    r"\b(?:after|before|by|next to|of|under|with|without) whose\b": (
        "a second sentence with the noun"
    ),
    r"\b(?:next to|besides|beyond) which\b": "a second sentence with the noun",
    r"\bnone as (?:large|long|many|small)\b": "a smaller one, fewer",
    r"\bas many times (?:as|the)\b": "in proportion to, times as long",
    r"\bof those of\b": "the noun itself",
    r"\bthat of those\b": "the noun itself",
    r"\bout of memory all the same\b": "runs out of memory",
    r"\bnothing to it\b": "a sentence with the noun",
    r"\bin front of\b": "before",
    r"\bbehind (?:an?|the|other) (?:\w+ )?(?:network|pipeline|scaler|step|transform)": (
        "after"
    ),
    r"\b(?:none|nothing) where\b": "no ... if",
    r"\bgoes on\b": "continues",
    r"\b(?:that|those) of (?:an?|the|its)\b": "the noun itself",
    r"\bof (?:its|their) own\b": "separate, its",
    r"\bends of (?:(?:an?|the) )?(?:cell|interval)s?\b": "bounds",
    r"\bfor ever\b": "indefinitely",
    r"\bat hand\b": "available",
    r"\bis (?-i:none)\b": "there is no",
    r"(?<!\.)\bask(?:s|ed)?\b": "requires, requests",
}
# Words of a docstring's description, at least.
FEWEST_WORDS = 3
# Names in double back-ticks that the package does not contain.
FOREIGN_NAMES = {"sha256sum", "help", "MSELoss", "Transformer", "M_MMAP_THRESHOLD"}
# Several tests need the tree of a text.
_tree = cache(ast.parse)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _texts():
    """Path and text of every file whose English is checked.

    Of the package and the documentation the whole text, of tests and scripts the
    docstrings, comments and names.
    """
    documents = [*sorted(ROOT.glob("*.md")), ROOT / "Makefile"]
    for folder in ("docs", "benchmarks", "reproductions", ".github"):
        documents += sorted((ROOT / folder).rglob("*.md"))
    for path in [*sorted(PACKAGE.rglob("*.py")), *documents]:
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in _scripts():
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(ROOT).as_posix(), _prose(text)


def _scripts():
    """Python files outside of the package."""
    folders = "tests", "examples", "benchmarks", "reproductions", "tools", "docs"
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _documented(node):
    """The module, its classes and functions; not the expressions, which are many."""
    if isinstance(node, DOCUMENTED):
        yield node
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield from _documented(child)


def _prose(text):
    """Docstrings, comments, and names of functions and classes, each in its line.

    Underscores in names become spaces; all other lines are empty.
    """
    lines, prose = text.splitlines(), {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            prose[token.start[0]] = token.string
    for node in _documented(_tree(text)):
        if not isinstance(node, ast.Module):
            prose[node.lineno] = node.name.replace("_", " ")
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            for number in range(docstring.lineno, docstring.end_lineno + 1):
                prose[number] = lines[number - 1]
    return "\n".join(prose.get(number, "") for number in range(1, len(lines) + 1))


def _banned_phrases(text):
    """Line number and text of every banned phrase, and better words."""
    # Remove the marks of comments, which a phrase may cross, but keep the positions.
    plain = re.sub(r"(?m)^[ ]*#", lambda match: " " * len(match[0]), text)
    for phrase, better in BANNED.items():
        for match in re.finditer(phrase.replace(" ", r"\s+"), plain, re.IGNORECASE):
            line = plain.count("\n", 0, match.start()) + 1
            yield line, " ".join(match[0].split()), better


def _docstrings(text):
    """Line number and docstring of the module, its classes and functions."""
    for node in _documented(_tree(text)):
        if docstring := ast.get_docstring(node):
            yield getattr(node, "lineno", 1), docstring


def test_no_banned_phrase():
    hits = [
        f"{path}:{line}: {phrase} (better: {better})"
        for path, text in _texts()
        for line, phrase, better in sorted(_banned_phrases(text))
    ]
    assert not hits, "\n".join(["rewrite in plain English:", *hits])


def test_the_phrases_are_found():
    """Across line breaks and comment marks, in upper case too; not within names."""
    text = (
        "# Whoever fails is fitted\n    # by itself.\nof fewer\nthan\nsaid_by = anew_\n"
    )
    assert sorted(_banned_phrases(text)) == [
        (1, "Whoever", "users who, if you"),
        (2, "by itself", "alone, without"),
        (3, "of fewer than", "with fewer than"),
    ]


def test_prose_of_a_script():
    """Docstrings, comments and names, but no other strings or names."""
    text = (
        "def test_one_that_is_none():\n"
        '    """Whoever."""\n'
        '    said_by = "says"  # beside\n'
        "    assert None is None\n"
    )
    hits = [hit[:2] for hit in sorted(_banned_phrases(_prose(text)))]
    assert hits == [(1, "is none"), (2, "Whoever"), (3, "beside")]


def test_docstrings_have_content():
    """A docstring has at least some words, and no arrow in place of a verb."""
    texts = [
        (path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in [*sorted(PACKAGE.rglob("*.py")), *_scripts()]
    ]
    hits = [
        f"{path}:{line}: {docstring.splitlines()[0]}"
        for path, text in texts
        for line, docstring in _docstrings(text)
        if len(docstring.split()) < FEWEST_WORDS
        or re.search(r"\s->\s", docstring.splitlines()[0])
    ]
    assert not hits, "\n".join(["write a sentence, or delete the docstring:", *hits])


def _identifiers(paths):
    """Names, arguments, attributes and short strings of Python files."""
    names = set()
    for path in paths:
        names.add(path.stem)
        for node in ast.walk(_tree(path.read_text(encoding="utf-8"))):
            for field in ("id", "attr", "arg", "name", "asname"):
                value = getattr(node, field, None)
                names.update(value.split(".") if isinstance(value, str) else ())
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return names


def test_names_in_back_ticks_exist():
    """A name in double back-ticks occurs in the code of the package or of its tests."""
    package = sorted(PACKAGE.rglob("*.py"))
    known = _identifiers([*package, *_scripts()]) | FOREIGN_NAMES
    hits = []
    for path in package:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"``([A-Za-z_][\w.]*)(?:\(\))?``", text):
            if match[1].rpartition(".")[2] not in known:
                line = text.count("\n", 0, match.start()) + 1
                hits.append(f"{path.relative_to(ROOT)}:{line}: {match[1]}")
    assert not hits, "\n".join(["these names do not exist:", *hits])
