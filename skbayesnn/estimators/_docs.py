"""Complete the docstrings of the estimators: parameters that they share, in full.

In the source, a class documents its own parameters and refers to another class for the
others: "alpha, beta" over "As in :class:`Other`." On import each such entry is replaced
by the entries of the other class, so that ``help`` and the documentation show all of
them.
"""

import inspect
import re
from collections.abc import Iterable
from functools import cache

_REFERENCE = re.compile(r"As in :class:`(\w+)`\.?")
_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n", re.MULTILINE)
_NEXT_SECTION = re.compile(r"^\w[\w ]*\n-{3,}$", re.MULTILINE)


def complete_docstrings(classes: Iterable[type]) -> None:
    """Replace references by the entries of the class that they name, in place."""
    by_name = {estimator_class.__name__: estimator_class for estimator_class in classes}
    completed: dict[str, str] = {}

    def complete(name: str) -> str:
        if name not in completed:
            text = inspect.cleandoc(by_name[name].__doc__ or "")
            completed[name] = _with_entries(text, lambda other: complete(other))
        return completed[name]

    for name, estimator_class in by_name.items():
        estimator_class.__doc__ = complete(name)


def entries_of(text: str, section: str) -> dict[str, str]:
    """Entries of a section of a docstring, by header."""
    found = {}
    for header, lines in _entries(_section(text, section)[1]):
        found[header] = "\n".join([header, *lines])
    return found


def _with_entries(text: str, doc_of) -> str:
    for section in ("Parameters", "Attributes"):
        if not _has(text, section):
            continue
        start, body, end = _section(text, section)
        parts = []
        for header, lines in _entries(body):
            reference = _REFERENCE.fullmatch(" ".join(line.strip() for line in lines))
            if reference is None:
                parts.append("\n".join([header, *lines]))
                continue
            others = _by_name(doc_of(reference[1]), section)
            parts += _unique(others[name] for name in re.split(r",\s*", header))
        text = text[:start] + "\n".join(parts) + "\n" + text[end:]
    return text


@cache
def _by_name(text: str, section: str) -> dict[str, str]:
    """Entries by the name of each parameter; several names may share an entry."""
    return {
        name.strip(): entry
        for header, entry in entries_of(text, section).items()
        for name in header.split(" : ")[0].split(",")
    }


def _unique(entries: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(entries))


def _has(text: str, section: str) -> bool:
    return any(match[1] == section for match in _SECTION.finditer(text))


def _section(text: str, section: str) -> tuple[int, str, int]:
    """Start, text and end of a section's entries."""
    start = next(m.end() for m in _SECTION.finditer(text) if m[1] == section)
    following = _NEXT_SECTION.search(text, start)
    end = following.start() if following else len(text)
    body = text[start:end].rstrip("\n")
    return start, body, start + len(body) + 1


def _entries(body: str) -> list[tuple[str, list[str]]]:
    """Headers, which are not indented, and the lines below each."""
    entries: list[tuple[str, list[str]]] = []
    for line in body.split("\n"):
        if line and not line[0].isspace():
            entries.append((line, []))
        elif entries:
            entries[-1][1].append(line)
    return entries
