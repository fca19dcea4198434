"""What does a distilled network lose, and how much faster is it?

The default stack and the network that ``distill`` trains from its training rows. The
first canonical split of UCI sets, a random fifth of digits and breast cancer, and
generated sales, a frame of mixed columns; at most 3,000 rows train. The tables contain
the mean CRPS, or log loss for classes, of the test rows, the ratio of both, the loss
that ``distill`` measures without y, the correlation of the epistemic parts, the median
milliseconds of an interval (of class probabilities) for one row, also by ONNX, the
seconds for 100,000 rows, and the size of the files. Times are CPU times.

    python benchmarks/distill.py
    python benchmarks/distill.py --tables yacht,energy --inner

``--inner`` holds out a fifth of the training rows instead: constants were selected so.
"""

import statistics
import time
import warnings

import numpy as np
import onnxruntime
from common import command_line, environment, table
from mixed_tables import sales
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing
from uci import load

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    distill,
    dumps,
    predict_distribution,
    to_onnx,
)

UCI = "yacht energy concrete wine-quality-red kin8nm protein-tertiary-structure"
CLASSES = {"digits": load_digits, "breast_cancer": load_breast_cancer}
MOST, MOST_TEST, CALLS, MANY = 3_000, 2_000, 200, 100_000


def rows_of(name: str, inner: bool):
    """X, y, training rows and test rows."""
    if name in CLASSES:
        X, y = CLASSES[name](return_X_y=True)
        train, test = train_test_split(
            np.arange(len(y)), test_size=0.2, random_state=0, stratify=y
        )
    elif name == "sales":
        X, y = sales()
        y = np.log(np.asarray(y))
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[:2000], order[2000:]
    else:
        X, y, train, test = load(name, 1)
        train, test = train[0], test[0]
    if len(train) > MOST:
        train = np.random.default_rng(0).permutation(train)[:MOST]
    if inner:
        order = np.random.default_rng(1).permutation(train)
        train, test = np.split(order, [int(0.8 * len(order))])
    return X, y, train, test[:MOST_TEST]


def score(model, X, y) -> float:
    """Mean CRPS, or log loss."""
    if hasattr(model, "classes_"):
        return -model.log_predictive_density(X, y).mean()
    return model.crps(X, y).mean()


def method_of(model):
    """The prediction to time."""
    return getattr(model, "predict_interval", None) or model.predict_proba


def of_single_rows(predict, rows) -> float:
    """Median CPU milliseconds of one row."""
    times = []
    for row in rows:
        start = time.process_time()
        predict(row)
        times.append(time.process_time() - start)
    return 1e3 * statistics.median(times)


def of_many_rows(model, X) -> float:
    """CPU seconds of all rows."""
    predict = method_of(model)
    predict(X[:1000])
    start = time.process_time()
    predict(X)
    return time.process_time() - start


def by_onnx(model, X) -> float:
    """Median CPU milliseconds of one row, with bounds of intervals; NaN for frames."""
    if not isinstance(X, np.ndarray):
        return np.nan
    options = {} if hasattr(model, "classes_") else {"q": (0.05, 0.95)}
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        to_onnx(model, **options).SerializeToString(), settings
    )
    rows = X[:CALLS].astype(np.float32)
    return of_single_rows(
        lambda row: session.run(None, {"X": row}), [rows[[i]] for i in range(len(rows))]
    )


def main() -> None:
    arguments = command_line(__doc__)
    names = [*UCI.split(), *CLASSES, "sales"]
    arguments.add_argument("--tables", default=",".join(names))
    arguments.add_argument("--inner", action="store_true")
    options = arguments.parse_args()
    print(environment())
    warnings.filterwarnings("ignore")
    rows = []
    for name in options.tables.split(","):
        X, y, train, test = rows_of(name, options.inner)
        kind = BayesianStackingClassifier if name in CLASSES else None
        stack = (kind or BayesianStackingRegressor)(random_state=0)
        stack.fit(_safe_indexing(X, train), y[train])
        start = time.process_time()
        student = distill(stack, _safe_indexing(X, train))
        seconds = time.process_time() - start
        X_test, both = _safe_indexing(X, test), (stack, student)
        scores = [score(model, X_test, y[test]) for model in both]
        epistemic = [predict_distribution(m, X_test).epistemic() for m in both]
        single = [_safe_indexing(X_test, [i % len(test)]) for i in range(CALLS)]
        one = [of_single_rows(method_of(model), single) for model in both]
        many = _safe_indexing(X_test, np.resize(np.arange(len(test)), MANY))
        all_rows = [of_many_rows(model, many) for model in both]
        sizes = [len(dumps(model)) / 1e3 for model in both]
        cells = [
            f"{scores[0]:.3g}",
            f"{scores[1] / scores[0]:.3f}",
            f"{student.distillation_loss_:.1%}",
            f"{np.corrcoef(*epistemic)[0, 1]:.2f}",
            *(f"{value:.2f}" for value in (*one, by_onnx(student, X_test))),
            *(f"{value:.2f}" for value in all_rows),
            *(f"{value:.0f}" for value in (*sizes, seconds)),
        ]
        rows.append([name, f"{len(train):,}", *cells])
        print(*rows[-1], flush=True)
    header = ["table", "rows", "score", "ratio", "loss", "epistemic", "one row, ms"]
    header += ["student", "ONNX", f"{MANY:,} rows, s", "student", "file, kB", "student"]
    print(table([*header, "training, s"], rows))


if __name__ == "__main__":
    main()
