"""The Bayesian stack as a system of TabArena: it holds out rows and mixes models."""

import numpy as np
import pandas as pd
from tabarena.benchmark.exec_models import ExternalSystemModel

KINDS = {
    "regression": "BayesianStackingRegressor",
    "binary": "BayesianStackingClassifier",
    "multiclass": "BayesianStackingClassifier",
}


class BayesianStackingSystemModel(ExternalSystemModel):
    """Wrap ``skbayesnn.BayesianStackingRegressor`` and ``BayesianStackingClassifier``.

    The frame is passed on as it is. Groups stay together in the folds, and rows with a
    time are held out in the order of time. The limit of memory is ignored.

    Parameters
    ----------
    pool : {"fast", "auto", "best"}, default="auto"
    """

    warmup_modules = ("skbayesnn",)
    warmup_torch_device = True

    def __init__(self, *, pool="auto", **kwargs):
        super().__init__(**kwargs)
        self.pool = pool

    @property
    def warmup_fn(self):
        """Compile before the time of the fit is measured."""

        def warm_up():
            import skbayesnn

            report = self._declared_warmup()
            skbayesnn.warm_up()
            return report

        return warm_up

    def _fit_system(
        self,
        X,
        y,
        *,
        problem_type,
        validation_metadata,
        num_cpus,
        time_limit,
        random_state,
        **context,
    ):
        import torch
        from sklearn.model_selection import TimeSeriesSplit

        import skbayesnn

        if problem_type not in KINDS:
            raise ValueError(
                f"`problem_type` must be one of {', '.join(KINDS)}; got "
                f"{problem_type!r}."
            )
        params = {"random_state": 0 if random_state is None else random_state}
        if time_limit is not None:
            # The stack keeps its limit within 10 %.
            params["time_limit"] = 0.9 * time_limit
        if validation_metadata.time_on is not None:
            order = X[validation_metadata.time_on].argsort(kind="stable")
            X, y, params["cv"] = X.iloc[order], y.iloc[order], TimeSeriesSplit()
        columns = np.ravel(validation_metadata.group_on or []).tolist()
        groups = X.groupby(columns, dropna=False).ngroup() if columns else None
        model = getattr(skbayesnn, KINDS[problem_type])(self.pool, **params)
        n_threads = torch.get_num_threads()
        try:
            torch.set_num_threads(int(num_cpus or n_threads))
            self._model = model.fit(X, y, groups=groups)
        finally:
            torch.set_num_threads(n_threads)
        return self

    def _predict(self, X):
        return pd.Series(self._model.predict(X), index=X.index)

    def _predict_proba(self, X):
        probability = self._model.predict_proba(X)
        return pd.DataFrame(probability, index=X.index, columns=self._model.classes_)

    def cleanup(self):
        """Free the memory of the model."""
        self._model = None
