"""Several estimators on the rows of one table, as the members of one program."""

from itertools import repeat

from skbayesnn.estimators import _fit, _job
from skbayesnn.estimators._training_data import TrainingData


def fit_together(estimators, table, rows, validation=None, classes=None):
    """The engine's door, ``train_together``, with a table that all have in common.

    rows, validation : of each estimator; the latter stop its training
    """
    target_attributes = {} if classes is None else {"classes_": classes}
    jobs = [
        _job.training_job(
            estimator, TrainingData(table, of_one, held_out, target_attributes)
        )
        for estimator, of_one, held_out in zip(
            estimators, rows, validation or repeat(None), strict=False
        )
    ]
    return _fit.train_together(estimators, jobs)
