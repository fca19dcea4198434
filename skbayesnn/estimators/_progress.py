"""Progress on long fits: scikit-learn's callbacks where they exist, tqdm when verbose.

scikit-learn 1.9 introduced ``sklearn.callback``: callbacks that are registered with
``set_callbacks`` on the estimator, or on a search around it, are told about every
epoch. ``verbose=True`` shows a tqdm bar in any version.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from skbayesnn._sklearn_compat import callback_context, has_callbacks


@contextmanager
def epochs_reported(estimators, n_epochs: int, verbose: bool) -> Iterator:
    """A function to call after each epoch with the number of epochs done.

    Raises
    ------
    ImportError
        ``verbose`` without tqdm.
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
        if verbose
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
            "verbose=True shows its progress with tqdm, which is not installed; "
            "install it with `pip install tqdm`, or set verbose=False."
        ) from error
    return tqdm(**options)
