"""Hidden layers of wide networks, for a posterior of the last layer alone.

L-BFGS iterations on all weights alternate with the evidence of the last layer, which
estimates its prior precision and tau. The evidence does not know that hidden layers
adapt to noise: held-out rows stop the training.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from skbayesnn.estimators._dense_network import DenseNetwork, Layers, features
from skbayesnn.estimators._evidence import (
    DataTerm,
    Mode,
    TrainingRows,
    largest_evidence,
    n_terms,
)

# Iterations between two estimates of precisions, steps of an estimate, and estimates.
ITERATIONS, STEPS, MAX_ROUNDS = 60, 20, 30
# First tau of standardised targets: from small values, it increases slowly.
START_TAU = 30.0
# Share of the rows that stop the training, and the number of rounds in which their log
# density must increase, by LEAST_GAIN nats a row.
HELD_OUT, PATIENCE, LEAST_GAIN = 0.2, 3, 1e-3


def trained_hidden_layers(
    network: DenseNetwork,
    X: np.ndarray,
    term: DataTerm,
    random: np.random.Generator,
    *,
    alpha: np.ndarray,
    tau: np.ndarray | None,
) -> Layers:
    """Matrix and bias of each hidden layer.

    alpha : (n_weights,), prior precisions; NaN is 1 for biases of hidden layers, and
        estimated in the last layer
    tau : (terms,), precisions that are held; None estimates them
    """
    held_out = random.permutation(len(X)) < HELD_OUT * len(X)
    rows, new = (
        TrainingRows(network, X[of], term.of_rows(of)) for of in (~held_out, held_out)
    )
    last = DenseNetwork(network.sizes[-2:], network.activation)
    weights, n = network.initial(random), last.n_weights
    first_tau = np.full(n_terms(network, term), START_TAU)
    mode = Mode(weights[-n:], np.ones(n), first_tau if tau is None else tau)
    best, since = np.inf, 0
    layers: Layers = []
    for _ in range(MAX_ROUNDS):
        precisions = np.r_[np.nan_to_num(alpha[:-n], nan=1.0), mode.alpha], mode.tau
        weights = minimize(
            rows.loss_and_gradient,
            np.r_[weights[:-n], mode.weights],
            precisions,
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": ITERATIONS},
        ).x
        hidden = network.layers(weights)[:-1]
        mode = largest_evidence(
            last,
            features(hidden, network.activation, rows.X),
            rows.term,
            Mode(weights[-n:], mode.alpha, mode.tau),
            prior="layer",
            alpha=alpha[-n:],
            tau=tau,
            max_steps=STEPS,
        )
        loss = mode.tau @ new.values(np.r_[weights[:-n], mode.weights])
        if term.by_output:
            loss -= 0.5 * new.term.weights.sum() * np.log(mode.tau).sum()
        since += 1
        if not layers or loss < best - LEAST_GAIN * new.term.weights.sum():
            best, layers, since = loss, hidden, 0
        if since == PATIENCE:
            break
    return layers
