"""Shared parts of the reproductions: command line, data, the table, pictures.

A script has ``main(quick)``, which returns a ``Report``, and ends with ``run(main)``.
``--quick`` takes seconds: every line runs, but results mean nothing. ``--write`` puts
the report into its section of RESULTS.md.
"""

import argparse
import importlib.metadata
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("SKBAYESNN_DATA", ROOT.parent / "shared" / "data"))
RESULTS = ROOT / "reproductions" / "RESULTS.md"
# Pictures of the full form belong to docs/reproductions.md; those of --quick do not.
PICTURES = {False: ROOT / "docs" / "reproductions", True: ROOT / "build/reproductions"}
HEADER = ("", "published", "here", "tolerance", "verdict")
# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
PINK, SKY = "#CC79A7", "#56B4E9"


@dataclass
class Report:
    """Lines of published and own results.

    Parameters
    ----------
    source : str
        Paper, and table or figure.
    setting : str
        What is as in the paper, and what is not.
    """

    source: str
    setting: str
    lines: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def number(self, what, published, here, tolerance, form=".3g", higher=None):
        """Compare a number: "within" the tolerance, or "outside".

        form : format of all numbers
        higher : bool, whether higher is better; names the side of a difference
        """
        verdict = "within"
        # Also for nan.
        if not abs(here - published) <= tolerance:
            verdict = "outside"
            if higher is not None:
                better = (here > published) == higher
                verdict += ", better" if better else ", worse"
        numbers = [f"{value:{form}}" for value in (published, here)]
        self.lines.append((what, *numbers, f"+- {tolerance:{form}}", verdict))

    def statement(self, what, here, holds, published="yes", tolerance="-"):
        """Compare a statement of the paper: "agrees", or "differs".

        here : text with our numbers
        tolerance : rule by which ``holds`` was decided
        """
        verdict = "agrees" if holds else "differs"
        self.lines.append((what, published, here, tolerance, verdict))

    def show(self, what, published, here):
        """Add a line without a verdict, for values that cannot be compared."""
        self.lines.append((what, published, here, "-", "not compared"))

    def __str__(self):
        agree = sum(line[-1] in ("within", "agrees") for line in self.lines)
        judged = sum(line[-1] != "not compared" for line in self.lines)
        parts = [self.source, self.setting, table(HEADER, self.lines), *self.notes]
        return "\n\n".join([*parts, f"{agree} of {judged} agree with the paper."])


def table(header, lines):
    """A Markdown table with aligned columns."""
    widths = [
        max(len(line[i]) for line in (header, *lines)) for i in range(len(header))
    ]

    def row(cells):
        padded = [cells[0].ljust(widths[0])]
        padded += [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([row(header), rule, *map(row, lines)])


def run(main: Callable[[bool], Report]) -> None:
    """Run a script from the command line."""
    script = Path(sys.argv[0]).name
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="smallest sizes")
    parser.add_argument("--write", action="store_true", help="update RESULTS.md")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("results of --quick mean nothing: leave --write out")
    # Short training and constant columns, as in the papers.
    warnings.simplefilter("ignore", UserWarning)
    start = time.process_time()
    report = main(options.quick)
    minutes = (time.process_time() - start) / 60
    text = f"`python reproductions/{script}`, {minutes:.1f} CPU minutes, {machine()}."
    text = f"{text}\n\n{report}"
    print(text)
    if options.write:
        write_section(script, text)


def write_section(script, text):
    """Replace the section of a script in RESULTS.md, or append it."""
    before = RESULTS.read_text(encoding="utf-8")
    head, *sections = re.split(r"^## (?=\w+\.py$)", before, flags=re.MULTILINE)
    by_name = {part.split("\n", 1)[0]: part for part in sections}
    by_name[script] = f"{script}\n\n{text}"
    parts = [head, *(f"## {by_name[name]}" for name in sorted(by_name))]
    text = "\n\n".join(part.strip() for part in parts)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def machine():
    """Processor and versions that a result depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    about = dict(reversed([line.partition("\t: ")[::2] for line in lines]))
    name = about.get("model name", platform.machine())
    versions = (
        f"{name} {importlib.metadata.version(name)}"
        for name in ("torch", "numpy", "scikit-learn")
    )
    threads = torch.get_num_threads()
    return ", ".join([name, f"{threads} thread{'s' * (threads > 1)}", *versions])


def data_file(*parts):
    """A file of the data folder; if it does not exist, skip the script."""
    path = DATA.joinpath(*parts)
    if not path.is_file():
        skip(
            f"{'/'.join(parts)} is missing. Set the environment variable "
            "SKBAYESNN_DATA to the folder that contains it."
        )
    return path


def skip(reason):
    """Print why a script cannot run, and exit with 0."""
    print(f"Skipped: {reason}")
    sys.exit(0)


def save(figure, name, quick):
    """Write a picture and print its path."""
    PICTURES[quick].mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES[quick] / name, dpi=40 if quick else 90)
    plt.close(figure)
    print(f"picture: {PICTURES[quick] / name}", file=sys.stderr)


def uci(name):
    """X, y, and the training and test rows of each split, in the published order."""
    with np.load(data_file("uci", name, f"{name}.npz")) as arrays:
        X, y = arrays["X"].astype(np.float32), arrays["y"]
        return X, y, arrays["train_index"].astype(int), arrays["test_index"].astype(int)


def mnist(n_train=None, n_test=None):
    """X_train, y_train, X_test, y_test of MNIST, in [0, 2]; at most so many images.

    All 70,000 images if ``digits/mnist.npz`` is there (the file of Keras and of
    TensorFlow, with x_train, y_train, x_test, y_test); else 10,000 and 2,000 of them.
    """
    names = "mnist.npz", "mnist_10k2k.npz"
    name = next((n for n in names if (DATA / "digits" / n).is_file()), names[1])
    with np.load(data_file("digits", name)) as arrays:
        by_name = {key.lower(): value for key, value in arrays.items()}
    # Divided by 126 as in Blundell et al. (2015), section 5.1.
    X, X_test = (
        (by_name[key][:n].reshape(-1, 784) / 126).astype(np.float32)
        for key, n in (("x_train", n_train), ("x_test", n_test))
    )
    return X, by_name["y_train"][:n_train], X_test, by_name["y_test"][:n_test]
