"""Progress on long fits: scikit-learn's callbacks where they exist, tqdm when verbose.

scikit-learn 1.9 introduced ``sklearn.callback``: callbacks that are registered with
``set_callbacks`` on the estimator, or on a search around it, are told about every
epoch. ``verbose=True`` shows a tqdm bar in any version.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.pipeline import Pipeline

from skbayesnn._sklearn_compat import with_callbacks


@contextmanager
def epochs_reported(estimators, n_epochs: int, verbose: bool) -> Iterator:
    """A function to call after each epoch with the number of epochs done.

    Raises
    ------
    ImportError
        ``verbose`` without tqdm.
    """
    contexts = [
        (estimator, estimator._init_callback_context(max_subtasks=n_epochs))
        for estimator in estimators
        if getattr(estimator, "_skl_callbacks", None)
    ]
    for estimator, context in contexts:
        context.call_on_fit_task_begin(estimator=estimator)
    bar = (
        _tqdm()(total=n_epochs, desc=_title(estimators), unit="epoch")
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


@with_callbacks
def tell_afterwards(estimator, n_epochs: int) -> None:
    """Tell the callbacks of a fit that is over.

    Of a network all epochs; of a pipeline its last step, because the steps before it
    were fitted for others, too.
    """
    if not isinstance(estimator, Pipeline):
        with epochs_reported([estimator], n_epochs, verbose=False) as report:
            for epoch in range(n_epochs):
                report(epoch + 1)
        return
    fit = estimator._init_callback_context(max_subtasks=1)
    fit.call_on_fit_task_begin(estimator=estimator)
    last = fit.subcontext(task_name="fit-final-estimator")
    with last.propagate_callback_context(estimator[-1]):
        last.call_on_fit_task_begin(estimator=estimator)
        tell_afterwards(estimator[-1], n_epochs)
        last.call_on_fit_task_end(estimator=estimator)
    fit.call_on_fit_task_end(estimator=estimator)


@contextmanager
def members_reported(n_members: int, verbose: bool) -> Iterator:
    """A function to call with the number of members done, and the best scores so far.

    Raises
    ------
    ImportError
        ``verbose`` without tqdm.
    """
    bar = _tqdm()(total=n_members, unit="member") if verbose else None

    def report(n_done: int, best: dict[str, float]) -> None:
        if bar is not None:
            shown = ", ".join(f"{name} {score:.4g}" for name, score in best.items())
            if shown:
                bar.set_postfix_str(f"best {shown}", refresh=False)
            bar.update(n_done - bar.n)

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()


def _title(estimators) -> str:
    name = type(estimators[0]).__name__
    return name if len(estimators) == 1 else f"{name} x {len(estimators)}"


def _tqdm():
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose=True shows its progress with tqdm, which is not installed; "
            "install it with `pip install tqdm`, or set verbose=False."
        ) from error
    return tqdm
