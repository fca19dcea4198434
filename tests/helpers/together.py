"""Train several estimators on rows of one table, as the members of one program."""

from itertools import repeat

from skbayesnn.estimators import _fit, _job
from skbayesnn.estimators._training_data import TrainingData


def fit_together(estimators, table, rows, validation=None, classes=None):
    """Call the engine's ``train_together`` with a common table.

    rows, validation : row indices for each estimator; training stops on the latter
    """
    target_attributes = {} if classes is None else {"classes_": classes}
    jobs = [
        _job.training_job(
            estimator, TrainingData(table, rows_of_one, held_out, target_attributes)
        )
        for estimator, rows_of_one, held_out in zip(
            estimators, rows, validation or repeat(None), strict=False
        )
    ]
    return _fit.train_together(estimators, jobs)
