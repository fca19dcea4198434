"""Monte Carlo dropout [GG16]: dropout as approximate Bayesian inference."""

from skbayesnn.estimators.classification import BayesianClassifier
from skbayesnn.estimators.regression import BayesianRegressor


class _MCDropout:
    """The variational family: Bernoulli masks, none where nothing is dropped."""

    def _families(self, dropout):
        return ["bernoulli" if rate > 0 else "point" for rate in dropout]


class MCDropoutRegressor(_MCDropout, BayesianRegressor):
    """Neural network regression with Monte Carlo dropout."""

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        dropout=0.01,
        length_scale=0.1,
        tau="auto",
        likelihood="gaussian",
        n_estimators=1,
        n_draws=100,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        device="auto",
        verbose=False,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.length_scale = length_scale
        self.tau = tau
        self.likelihood = likelihood
        self.n_estimators = n_estimators
        self.n_draws = n_draws
        self.standardize = standardize
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def noise_std_(self):
        """1 / sqrt(tau_), y's units."""
        return self.tau_**-0.5


class MCDropoutClassifier(_MCDropout, BayesianClassifier):
    """Neural network classification with Monte Carlo dropout."""

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        dropout=0.05,
        length_scale=0.1,
        tau=1.0,
        class_weight=None,
        n_estimators=1,
        n_draws=100,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        device="auto",
        verbose=False,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.length_scale = length_scale
        self.tau = tau
        self.class_weight = class_weight
        self.n_estimators = n_estimators
        self.n_draws = n_draws
        self.standardize = standardize
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose
        self.random_state = random_state
