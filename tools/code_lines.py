"""How many code lines does each folder have?

Code lines contain a token; docstrings, comments and blank lines do not count. The
numbers are a thermometer, not a limit.

    python tools/code_lines.py skbayesnn tests
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(path: Path) -> int:
    """Number of code lines of a file."""
    source = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            text = node.body[0]
            lines -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print the lines of each folder below the given ones, and its longest file."""
    for root in map(Path, sys.argv[1:]):
        files = {path: code_lines(path) for path in sorted(root.rglob("*.py"))}
        print(f"{sum(files.values()):7,} {root}")
        for folder in sorted({path.parent for path in files}):
            own = {p: n for p, n in files.items() if p.parent == folder}
            longest = max(own, key=lambda path: own[path])
            name = folder.relative_to(root)
            print(f"{sum(own.values()):7,}   {name}, {longest.name} {own[longest]:,}")


if __name__ == "__main__":
    main()
