"""The Bayesian stack as a model of TabArena and AutoGluon.

The class has a separate file, because TabArena pickles it by its module.
"""

from autogluon.core.models import AbstractModel


class BayesianStackingModel(AbstractModel):
    """``skbayesnn.BayesianStackingRegressor`` and ``BayesianStackingClassifier``.

    The frame is passed on as it is: the stack encodes categories and missing values.
    """

    ag_key = "SKBAYESNN"
    ag_name = "BayesianStacking"

    def _fit(self, X, y, num_cpus=1, **kwargs):
        import torch

        from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor

        torch.set_num_threads(int(num_cpus))
        is_regression = self.problem_type == "regression"
        of_type = (
            BayesianStackingRegressor if is_regression else BayesianStackingClassifier
        )
        X = self.preprocess(X, is_train=True)
        self.model = of_type(**self._get_model_params()).fit(X, y)

    def _set_default_params(self):
        for name, value in {"estimators": "auto", "random_state": 0}.items():
            self._set_default_param_value(name, value)

    def _get_default_auxiliary_params(self):
        types = {"valid_raw_types": ["int", "float", "category"]}
        return super()._get_default_auxiliary_params() | types


def experiments():
    """The default configuration, in the cross-validation of TabArena."""
    from tabarena.utils.config_utils import ConfigGenerator

    generator = ConfigGenerator(
        model_cls=BayesianStackingModel, manual_configs=[{}], search_space={}
    )
    return generator.generate_all_bag_experiments(num_random_configs=0)
