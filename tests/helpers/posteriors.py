"""Every posterior that a user can choose, by name: add a line for a new one.

`test_posteriors.py` checks the package's promises for all of them, as regressors and as
classifiers.
"""

from dataclasses import dataclass

from sklearn.base import clone

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBClassifier,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn.networks import ConvNet, RecurrentNet

MC_DROPOUT = MCDropoutRegressor, MCDropoutClassifier
BBB = BBBRegressor, BBBClassifier
ANCHORED = AnchoredEnsembleRegressor, AnchoredEnsembleClassifier
VARIATIONAL = VariationalDropoutRegressor, VariationalDropoutClassifier

# For tables with four columns; three layers each, as the perceptrons have.
IMAGES = ConvNet((1, 2, 2), channels=(3, 2), pool=(2, 1), hidden_layer_sizes=())
SEQUENCES = RecurrentNet(2, 2, hidden_size=3, cell="gru")

# Regressor and classifier, and the parameters that select the posterior.
POSTERIORS = {
    "bernoulli": (MC_DROPOUT, {"dropout": 0.1}),
    "gaussian": (MC_DROPOUT, {"noise": "gaussian", "dropout": 0.1}),
    "dropconnect": (MC_DROPOUT, {"noise": "dropconnect", "dropout": 0.1}),
    "additive": (MC_DROPOUT, {"noise": "additive", "dropout": 0.1}),
    "discrete": (MC_DROPOUT, {"dropout": 0.1, "prior": "discrete"}),
    "concrete": (MC_DROPOUT, {"dropout": "auto"}),
    "some layers": (MC_DROPOUT, {"dropout": [0.0, 0.1, 0.3]}),
    "mean field": (BBB, {}),
    "spike and slab": (BBB, {"dropout": 0.2}),
    "sampled spike and slab": (BBB, {"dropout": 0.2, "kl": "sampled"}),
    "sampled kl": (BBB, {"kl": "sampled"}),
    "scale mixture": (BBB, {"prior": "scale_mixture", "kl": "sampled"}),
    "pathwise": (BBB, {"gradient": "pathwise"}),
    "geometric": (BBB, {"kl_weighting": "geometric"}),
    "type B, unit": (VARIATIONAL, {}),
    "type B, layer": (VARIATIONAL, {"alpha_per": "layer"}),
    "type B, kingma": (VARIATIONAL, {"kl_approximation": "kingma"}),
    "type A, unit": (VARIATIONAL, {"noise": "independent"}),
    "type A, weight": (VARIATIONAL, {"noise": "independent", "alpha_per": "weight"}),
    "type A, gaussian prior": (
        VARIATIONAL,
        {"noise": "independent", "alpha_per": "weight", "prior": "gaussian"},
    ),
    "images": (MC_DROPOUT, {"dropout": 0.1, "network": IMAGES, "activation": "tanh"}),
    "images, channels": (
        MC_DROPOUT,
        {"dropout": "auto", "network": clone(IMAGES).set_params(mask_per="channel")},
    ),
    "sequences": (MC_DROPOUT, {"dropout": 0.1, "network": SEQUENCES}),
    "sequences, mean field": (
        BBB,
        {"network": clone(SEQUENCES).set_params(cell="lstm")},
    ),
    "anchored": (ANCHORED, {}),
    "anchored, same rows": (ANCHORED, {"noisy_targets": False}),
}

# Values of the members of one program that must differ.
RATES = 0.05, 0.2, 0.4
MIXTURES = (
    {"pi": 0.5, "s1": 1.0, "s2": 0.1},
    {"pi": 0.1, "s1": 3.0, "s2": 0.3},
    {"pi": 0.9, "s1": 0.5, "s2": 0.02},
)


@dataclass(frozen=True)
class Case:
    """A posterior of a regressor, or of a classifier."""

    name: str
    classifies: bool

    def __str__(self):
        return f"{self.name}, {'classifier' if self.classifies else 'regressor'}"

    @property
    def chosen(self):
        """The parameters that select the posterior."""
        return POSTERIORS[self.name][1]

    def model(self, **parameters):
        """An estimator; ``parameters`` set its size and training.

        A ``dropout`` in them is ignored: the posterior determines it.
        """
        others = {key: value for key, value in parameters.items() if key != "dropout"}
        return POSTERIORS[self.name][0][self.classifies](**others | self.chosen)

    def differences(self, i):
        """Parameters of the i-th of three members that share a program.

        A rate can differ if it is above 0: at 0 the layer has another family.
        """
        rate = self.model().dropout
        differs = {"dropout": RATES[i]} if isinstance(rate, float) and rate > 0 else {}
        mixture = MIXTURES[i] if self.chosen.get("prior") == "scale_mixture" else {}
        return differs | mixture


CASES = [Case(name, kind) for name in POSTERIORS for kind in (False, True)]
# Every posterior once, alternately as a regressor and as a classifier, and the other
# half. If a test uses one half, another test uses the other half.
HALF, OTHER_HALF = (
    [Case(name, (i + first) % 2 == 1) for i, name in enumerate(POSTERIORS)]
    for first in (0, 1)
)
REGRESSORS = [case for case in CASES if not case.classifies]
