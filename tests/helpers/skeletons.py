"""The classes that CONTRIBUTING shows as skeletons."""

import ast
import re
from pathlib import Path

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def skeletons() -> dict:
    """All imports and classes of CONTRIBUTING's Python blocks, by name."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    kinds = ast.Import | ast.ImportFrom | ast.ClassDef
    nodes = [
        node
        for block in blocks
        for node in ast.parse(block).body
        if isinstance(node, kinds)
    ]
    namespace: dict = {"__name__": __name__}
    module = ast.Module(body=nodes, type_ignores=[])
    exec(compile(module, str(CONTRIBUTING), "exec"), namespace)
    return namespace
