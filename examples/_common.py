"""What the examples share: where data and pictures are, and how large they run.

With ``SKBAYESNN_EXAMPLES=short`` in the environment they take the smaller of their
sizes: every line runs, in seconds, but the numbers and pictures mean nothing. These
pictures have a folder of their own.
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
    """What an example runs with: ``full``, unless it is to be short."""
    return short if SHORT else full


def save(figure, name):
    """Write a picture and say where it is."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT / name, dpi=size(130, short=40))
    plt.close(figure)
    print(f"picture: {(OUTPUT / name).relative_to(ROOT)}")
