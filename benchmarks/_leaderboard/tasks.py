"""The data sets, and their splits into training and test rows.

The UCI sets have their canonical splits (read by ``uci.py``): 20 with fewer than 2,000
rows, five with more, three for the largest set. Classification uses the data of
scikit-learn and of the folder ``tabular``, with stratified random splits; only
``adult`` has its official test rows.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from common import data_folder
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import OneHotEncoder
from uci import ONLY_BY_NAME, SETS
from uci import load as load_uci

FEW_ROWS, SPLITS_OF_FEW, SPLITS_OF_MANY, SPLITS_OF_MOST = 2_000, 20, 5, 3
LARGEST = "protein-tertiary-structure"
TEST_SHARE = 0.2
# Levels of a category with fewer training rows share one column.
RARE = 10


@dataclass(frozen=True)
class Split:
    """Training and test rows; X is an array, or a frame if its types are mixed."""

    X_train: np.ndarray | pd.DataFrame
    y_train: np.ndarray
    X_test: np.ndarray | pd.DataFrame
    y_test: np.ndarray


@dataclass(frozen=True)
class Task:
    """A data set.

    kind : "regression", or "classification" with labels 0, 1, ...
    load : function that returns X, y, and the training and test rows of every split
    """

    name: str
    kind: str
    load: Callable[[], tuple]

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.load()[2][0])

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.load()[2])

    def split(self, number: int) -> Split:
        """The split with index ``number``."""
        X, y, trains, tests = self.load()
        train, test = trains[number], tests[number]
        take = X.iloc.__getitem__ if isinstance(X, pd.DataFrame) else X.__getitem__
        return Split(take(train), y[train], take(test), y[test])


def as_taken(split: Split, takes: str) -> tuple:
    """Training and test X in the form that a contestant needs.

    Transformers are fitted to the training rows only.

    takes : "frame", unchanged; "imputed", a frame without missing numerical values;
        "numbers", an array with a column per category
    """
    if takes == "frame" or not isinstance(split.X_train, pd.DataFrame):
        return split.X_train, split.X_test
    numeric = list(split.X_train.select_dtypes("number").columns)
    others = [name for name in split.X_train.columns if name not in numeric]
    if takes == "imputed":
        imputer = SimpleImputer(strategy="median").fit(split.X_train[numeric])
        return tuple(
            X.assign(**dict(zip(numeric, imputer.transform(X[numeric]).T, strict=True)))
            for X in (split.X_train, split.X_test)
        )
    one_hot = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=RARE, sparse_output=False
    )
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    encoder = make_column_transformer((one_hot, others), (numbers, numeric))
    return encoder.fit_transform(split.X_train), encoder.transform(split.X_test)


def _uci(name: str) -> tuple:
    X, y, train, test = load_uci(name, None)
    few, many = SPLITS_OF_FEW, SPLITS_OF_MANY
    n = few if len(y) < FEW_ROWS else SPLITS_OF_MOST if name == LARGEST else many
    return X, y, train[:n], test[:n]


def _of_sklearn(load: Callable) -> tuple:
    X, y = load(return_X_y=True)
    return X, y, *_stratified(y)


def _titanic() -> tuple:
    X, y = _mixed("titanic")
    return X, y, *_stratified(y)


def _adult() -> tuple:
    X, y = _mixed("adult")
    official = X.pop("split").to_numpy()
    train, test = (np.flatnonzero(official == name) for name in ("train", "test"))
    return X, y, [train], [test]


def _mixed(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    folder = data_folder("tabular")
    target = json.loads((folder / "meta.json").read_text())[name]["target"]
    X = pd.read_csv(folder / f"{name}.csv.gz")
    return X, np.unique(X.pop(target), return_inverse=True)[1]


def _stratified(y: np.ndarray) -> tuple[list, list]:
    n_splits = SPLITS_OF_FEW if len(y) < FEW_ROWS else SPLITS_OF_MANY
    splitter = StratifiedShuffleSplit(n_splits, test_size=TEST_SHARE, random_state=0)
    train, test = zip(*splitter.split(y, y), strict=True)
    return list(train), list(test)


def _task(name: str, kind: str, load: Callable, *of_what) -> Task:
    return Task(name, kind, cache(lambda: load(*of_what)))


TASKS = [
    *(_task(name, "regression", _uci, name) for name in (*SETS, *ONLY_BY_NAME)),
    _task("iris", "classification", _of_sklearn, load_iris),
    _task("wine", "classification", _of_sklearn, load_wine),
    _task("breast_cancer", "classification", _of_sklearn, load_breast_cancer),
    _task("titanic", "classification", _titanic),
    _task("digits", "classification", _of_sklearn, load_digits),
    _task("adult", "classification", _adult),
]
