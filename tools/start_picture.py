"""Draw the picture of the first page of the documentation, by the code of this page.

python tools/start_picture.py
"""

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        exec(compile(code, "index.md", "exec"))
    plt.gcf().set_size_inches(8, 4.5)
    plt.gcf().savefig(DOCS / "start.png", dpi=110, bbox_inches="tight")
