"""Warnings that point at the user's line."""

import sys
import warnings
from pathlib import Path
from types import FrameType

import joblib
import sklearn

# Code between the user's line and a warning: this package, and what calls it.
_FOLDERS = tuple(
    f"{Path(file).parent.as_posix()}/"
    for file in (__file__, joblib.__file__, sklearn.__file__)
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """``warnings.warn`` at the innermost line outside of this package.

    How many frames lie between differs between versions of scikit-learn, so that no
    fixed ``stacklevel`` is right.
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_between(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_between(filename: str) -> bool:
    return Path(filename).as_posix().startswith(_FOLDERS)
