"""Progress on long fits: scikit-learn's callbacks where they exist, tqdm when verbose.

scikit-learn 1.9 introduced ``sklearn.callback``: callbacks that are registered with
``set_callbacks`` on the estimator, or on a search around it, are told about every
epoch. From ``verbose=1`` on a tqdm bar is shown in any version.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from skbayesnn._sklearn_compat import callback_context, has_callbacks


@contextmanager
def epochs_reported(estimators, n_epochs: int, shown: bool) -> Iterator:
    """A function to call after each epoch with the number of epochs done.

    Raises
    ------
    ImportError
        ``shown`` without tqdm.
    """
    contexts = [
        (estimator, callback_context(estimator, n_epochs))
        for estimator in estimators
        if has_callbacks(estimator)
    ]
    for estimator, context in contexts:
        context.call_on_fit_task_begin(estimator=estimator)
    bar = (
        tqdm_bar(total=n_epochs, desc=_title(estimators), unit="epoch")
        if shown
        else None
    )

    def report(epoch: int) -> None:
        if bar is not None:
            bar.update(epoch - bar.n)
        for estimator, context in contexts:
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=estimator)
            task.call_on_fit_task_end(estimator=estimator)

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()
    for estimator, context in contexts:
        context.call_on_fit_task_end(estimator=estimator)


def _title(estimators) -> str:
    name = type(estimators[0]).__name__
    return name if len(estimators) == 1 else f"{name} x {len(estimators)}"


def time_left(seconds: float) -> str:
    """An estimate of the time left, in words; empty where there is none.

    Examples
    --------
    >>> time_left(41.7), time_left(250.0), time_left(9000.0), time_left(0.0)
    (', about 42 s left', ', about 4 min left', ', about 2.5 h left', '')
    """
    if seconds <= 0:
        return ""
    if seconds < 99.5:
        about = f"{max(seconds, 1):.0f} s"
    elif seconds < 99.5 * 60:
        about = f"{seconds / 60:.0f} min"
    else:
        about = f"{seconds / 3600:.1f} h"
    return f", about {about} left"


def tqdm_bar(**options):
    """A bar of tqdm.

    Raises
    ------
    ImportError
        Without tqdm.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose >= 1 shows progress with tqdm, which is not installed; "
            "install it with `pip install tqdm`, or set verbose=0."
        ) from error
    return tqdm(**options)
