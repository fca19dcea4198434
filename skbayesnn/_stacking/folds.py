"""Which rows are held out, and when."""

from numbers import Integral

from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)

# With fewer rows, folds; from here on a fifth of the rows, held out once.
FOLDS_BELOW, N_FOLDS = 700, 5


def folds_of(cv, X, y, groups, *, of_classes: bool, seed: int) -> list[tuple]:
    """(train, test) of every fold.

    cv : None, by the number of rows; int, shuffled folds; or as scikit-learn takes it
    """
    n_rows = len(y)
    own = cv is None or isinstance(cv, Integral)
    if own and groups is not None:
        raise ValueError(
            f"`groups` need a `cv` that keeps them together; got cv={cv!r}. Give "
            "sklearn.model_selection.GroupKFold() or another one of groups."
        )
    if cv is None and n_rows >= FOLDS_BELOW:
        once = StratifiedShuffleSplit if of_classes else ShuffleSplit
        cv = once(1, test_size=1 / N_FOLDS, random_state=seed)
    elif own:
        kind = StratifiedKFold if of_classes else KFold
        n_folds = min(N_FOLDS, n_rows) if cv is None else cv
        cv = kind(n_folds, shuffle=True, random_state=seed)
    splits = list(check_cv(cv, y, classifier=of_classes).split(X, y, groups))
    if not own:
        return splits
    # Folds of equally many rows share a program: some train on one row less.
    n_train = min(len(train) for train, _ in splits)
    return [(train[:n_train], test) for train, test in splits]
