"""Pictures of the examples in the gallery.

Pictures of an example in ``examples/output`` are used if it has drawn them. Otherwise
the example runs in its short form, in a process: that takes seconds, and shows what a
picture looks like, but not its result. ``SKBAYESNN_GALLERY=none`` in the environment
runs no example.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image
from sphinx.util import logging

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTPUT = EXAMPLES / "output"
LOGGER = logging.getLogger(__name__)
THUMBNAIL = 400, 280
BLOCK = ".. GENERATED FROM PYTHON SOURCE LINES"
SHORT_NOTE = """
.. note::

   Drawn with the smallest sizes, as a check that the example runs: the figures mean
   nothing. Run the example for its results.
"""


def pictures_of(example: Path) -> list[str]:
    """Names of the pictures that an example saves."""
    return re.findall(r'\bsave\(\w+, "(.+?)"\)', example.read_text(encoding="utf-8"))


def _run_short(example: Path) -> list[Path]:
    """Run an example in its short form; return the pictures that it printed."""
    LOGGER.info(f"running {example.name} in its short form")
    environment = os.environ | {"SKBAYESNN_EXAMPLES": "short"}
    result = subprocess.run(
        [sys.executable, example.name],
        cwd=EXAMPLES,
        env=environment,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        LOGGER.warning(f"{example.name} failed:\n{result.stderr[-2000:]}")
    paths = re.findall(r"^picture: (.+)$", result.stdout, flags=re.MULTILINE)
    return [EXAMPLES.parent / path for path in paths]


def _pictures(example: Path) -> tuple[list[Path], bool]:
    """Pictures to show, and whether they are of the short form."""
    names = pictures_of(example)
    # An example may lack the data of one of its pictures. At full size it may take an
    # hour: its pictures are used at any age.
    if full := [OUTPUT / name for name in names if (OUTPUT / name).exists()]:
        return full, False
    changed = example.stat().st_mtime
    paths = [OUTPUT / "short" / name for name in names]
    if short := [p for p in paths if p.exists() and p.stat().st_mtime >= changed]:
        return short, True
    if os.environ.get("SKBAYESNN_GALLERY") == "none":
        return [], False
    return _run_short(example), True


def _shrunk(source: Path, target: Path, size: tuple[int, int]) -> None:
    with Image.open(source) as image:
        image.thumbnail(size)
        canvas = Image.new("RGB", image.size, "white")
        canvas.paste(image, mask=image.convert("RGBA").getchannel("A"))
        canvas.quantize(128).save(target, optimize=True)


def _show(page: Path, pictures: list[Path], short: bool) -> None:
    """Insert pictures after the description of an example, and its thumbnail."""
    images = page.parent / "images"
    (images / "thumb").mkdir(parents=True, exist_ok=True)
    directives = [SHORT_NOTE] if short else []
    for path in pictures:
        _shrunk(path, images / path.name, (1400, 1400))
        directives.append(f"\n.. image:: images/{path.name}\n   :alt: {path.stem}\n")
    thumb = images / "thumb" / f"sphx_glr_{page.stem}_thumb.png"
    _shrunk(pictures[0], thumb, THUMBNAIL)
    text = page.read_text(encoding="utf-8")
    if f"images/{pictures[0].name}" not in text:
        # The second of two blocks is the code; the first one is the description.
        description, mark, code = text.rpartition(BLOCK)
        text = f"{description}{''.join(directives)}\n{mark}{code}"
        page.write_text(text, encoding="utf-8")


def _add_pictures(app) -> None:
    gallery = Path(app.confdir) / "gallery"
    for example in sorted(EXAMPLES.glob("[!_]*.py")):
        pictures, short = _pictures(example)
        if pictures:
            _show(gallery / f"{example.stem}.rst", pictures, short)


def setup(app):
    """Add the pictures after sphinx-gallery has written its pages."""
    app.connect("builder-inited", _add_pictures, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
