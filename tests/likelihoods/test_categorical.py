"""The categorical likelihood against scipy's log-softmax, in float64."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from skbayesnn._likelihoods import Categorical

DRAWS, MEMBERS, ROWS, CLASSES = 7, 3, 5, 4
TAU = np.array([1.0, 0.2, 6.0])


@pytest.fixture
def problem(seed):
    random = np.random.default_rng(seed)
    outputs = 3 * random.normal(size=(DRAWS, MEMBERS, ROWS, CLASSES))
    return outputs, random.integers(CLASSES, size=(MEMBERS, ROWS))


@pytest.mark.parametrize("shared", [True, False], ids=["shared y", "y per member"])
def test_log_density_is_the_log_softmax_of_the_label(problem, shared):
    outputs, labels = problem
    labels = labels[:1] if shared else labels
    likelihood = Categorical(CLASSES)
    params = likelihood.init(torch.as_tensor(TAU).unsqueeze(1))
    label_index = np.broadcast_to(labels, outputs.shape[:-1])[..., None]
    expected = np.take_along_axis(log_softmax(outputs, -1), label_index, -1)[..., 0]
    result = likelihood.log_density(
        params, torch.as_tensor(outputs), torch.as_tensor(labels)
    )
    assert result.shape == (DRAWS, MEMBERS, ROWS)
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_logits_of_any_size_stay_finite():
    likelihood = Categorical(2)
    params = likelihood.init(torch.ones(1, 1))
    outputs = torch.tensor([[[1e4, -1e4], [-1e4, 1e4]]])
    density = likelihood.log_density(params, outputs, torch.tensor([[0, 0]]))
    assert density.tolist() == [[0.0, -2e4]]
