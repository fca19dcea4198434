"""Shared parts of the examples: folders of data and pictures, and sizes.

With ``SKBAYESNN_EXAMPLES=short`` in the environment they use the smaller of their
sizes: every line runs, in seconds, but results and pictures mean nothing. These
pictures have their own folder.
"""

import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("SKBAYESNN_DATA", ROOT.parent / "shared" / "data"))
SHORT = os.environ.get("SKBAYESNN_EXAMPLES") == "short"
OUTPUT = ROOT / "examples" / "output" / ("short" if SHORT else "")


def size(full, short):
    """``full``, or ``short`` if examples run in their short form."""
    return short if SHORT else full


def save(figure, name):
    """Write a picture and print its path."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT / name, dpi=size(130, short=40))
    plt.close(figure)
    print(f"picture: {(OUTPUT / name).relative_to(ROOT)}")
