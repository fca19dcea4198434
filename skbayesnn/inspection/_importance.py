"""Permutation importance, of an uncertainty in place of a score."""

from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._sklearn_compat import safe_indexing
from skbayesnn.estimators._validation import check_number, random_source


def uncertainty_importance(
    model, X, *, background=None, kind=None, n_repeats=5, random_state=None
):
    """How much of the uncertainty is due to each column's values: "why this row?"

    One column's values are replaced by others that it has in the background, drawn at
    random, and the rest of each row stays [1]_. The importance is the uncertainty as
    it is minus what it is then, on average over ``n_repeats`` draws: positive where the
    value itself, or that it goes with the row's others, makes the row uncertain.

    Parameters
    ----------
    model : fitted estimator
        As :func:`skbayesnn.predict_uncertainty` takes it; one target.
    X : {array-like, DataFrame} of shape (n_samples, n_features)
        Rows to be explained. Not sparse.
    background : like X, of shape (n_background, n_features), default=None
        Rows that are not in question, as those of the training; None is X itself,
        which asks what tells its rows from each other.
    kind : str, default=None
        A kind of :func:`skbayesnn.predict_uncertainty`; None is ``"epistemic"`` for
        regressors and ``"mutual_information"`` for classifiers.
    n_repeats : int >= 1, default=5
        Each takes a prediction of all rows for each column.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    result : :class:`~sklearn.utils.Bunch`
        ``importances_mean``, ``importances_std`` (n_features,) and ``importances``
        (n_features, n_repeats), of the mean over rows, in the uncertainty's units, as
        :func:`sklearn.inspection.permutation_importance` has them; ``per_row``
        (n_samples, n_features), mean over repeats; ``uncertainty`` (n_samples,).

    References
    ----------
    .. [1] Breiman (2001), "Random forests", Machine Learning 45.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayesnn import AnchoredEnsembleRegressor
    >>> from skbayesnn.inspection import uncertainty_importance
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, size=(200, 3))
    >>> y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * random.normal(size=200)
    >>> model = AnchoredEnsembleRegressor(random_state=0).fit(X, y)
    >>> far = X[:20] + [0, 3, 0]
    >>> result = uncertainty_importance(model, far, background=X, random_state=0)
    >>> int(result.importances_mean.argmax())
    1
    """
    check_number("n_repeats", n_repeats, kind=Integral, low=1)
    random = random_source(random_state)
    X = _dense("X", X)
    background = _background_of(X, background)
    kind = default_kind(model) if kind is None else kind
    before = _of_one_target(model, X, kind)
    after = np.empty((X.shape[1], n_repeats, X.shape[0]))
    for column, repeat in np.ndindex(after.shape[:2]):
        rows = random.randint(background.shape[0], size=X.shape[0])
        replaced = _with_column(X, column, background, rows)
        after[column, repeat] = _of_one_target(model, replaced, kind)
    importances = before.mean() - after.mean(2)
    return Bunch(
        importances_mean=importances.mean(1),
        importances_std=importances.std(1),
        importances=importances,
        per_row=before[:, None] - after.mean(1).T,
        uncertainty=before,
    )


def default_kind(model) -> str:
    """What the model does not know, as its task calls it."""
    return "mutual_information" if hasattr(model, "predict_proba") else "epistemic"


def _dense(name, X):
    """A frame as it is, or an array."""
    if sparse.issparse(X):
        raise TypeError(
            f"`{name}` must be dense, since whole columns are replaced; got "
            f"{type(X).__name__}. Give some rows as `X.toarray()`."
        )
    X = X if hasattr(X, "iloc") else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"`{name}` must have rows and columns; got shape {X.shape}.")
    return X


def _background_of(X, background):
    """Rows from which columns are taken, checked against X."""
    if background is None:
        if X.shape[0] < 2:
            raise ValueError(
                "`background` must be given for fewer than 2 rows, which cannot be "
                f"compared with each other; got {X.shape[0]} rows and None. Give the "
                "training rows."
            )
        return X
    background = _dense("background", background)
    if hasattr(X, "iloc") != hasattr(background, "iloc"):
        raise TypeError(
            "`X` and `background` must be of one kind, so that columns are the same; "
            f"got {type(X).__name__} and {type(background).__name__}. Give both as "
            "DataFrames, or both as arrays."
        )
    if hasattr(X, "iloc") and list(X.columns) != list(background.columns):
        raise ValueError(
            "`X` and `background` must have the same columns in the same order; got "
            f"{list(X.columns)} and {list(background.columns)}."
        )
    if background.shape[1] != X.shape[1]:
        raise ValueError(
            "`X` and `background` must have the same columns; got shapes "
            f"{X.shape} and {background.shape}."
        )
    if not background.shape[0]:
        raise ValueError(
            "`background` must have at least one row; got none. Give the training rows."
        )
    return background


def _of_one_target(model, X, kind):
    uncertainty = predict_uncertainty(model, X, kind)
    if isinstance(uncertainty, dict) or np.ndim(uncertainty) != 1:
        raise ValueError(
            "`kind` must be one kind of uncertainty, of one target; got "
            f"kind={kind!r} and values of shape {np.shape(uncertainty)}."
        )
    return uncertainty


def _with_column(X, column, background, rows):
    """A copy of X, one column of which is that of some rows of the background."""
    others = safe_indexing(background, rows)
    if hasattr(X, "iloc"):
        X = X.copy()
        X[X.columns[column]] = others.iloc[:, column].to_numpy()
        return X
    # Whole numbers have room for fractions.
    X = X.astype(np.result_type(X, others))
    X[:, column] = others[:, column]
    return X
