"""Architectures for the estimators' ``network``: perceptrons, convolutional, recurrent.

They have plain parameters with ``get_params`` and ``set_params``, so that a search can
vary ``network__channels`` like any other parameter.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral

import numpy as np

from skbayesnn._networks import (
    Convolutional,
    Network,
    Perceptron,
    Recurrent,
)
from skbayesnn._networks.recurrent import CELLS
from skbayesnn._sklearn_compat import BaseEstimator
from skbayesnn._validation import check_number, check_option, hidden_sizes, layer_size

__all__ = ["MLP", "ConvNet", "NetworkDescription", "RecurrentNet"]


class NetworkDescription(BaseEstimator, ABC):
    """Base class of the architectures; describes a network before data are seen.

    Parameters
    ----------
    Each subclass has its own. ``__init__`` stores them unchanged.
    """

    def __eq__(self, other):
        """Whether both have the same type and equal parameters."""
        if type(self) is not type(other):
            return False
        params, other_params = self.get_params(), other.get_params()
        return all(np.array_equal(params[name], other_params[name]) for name in params)

    @property
    @abstractmethod
    def row_shapes(self) -> list[tuple[int, ...]]:
        """Shapes that a row of X may have, in addition to a flat one."""

    @abstractmethod
    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """Build the network for ``n_features`` columns and ``n_outputs`` outputs."""


class MLP(NetworkDescription):
    """Multilayer perceptron: linear layers with activations between them.

    The estimators use it if ``network=None``.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50, 50)
        Units of each hidden layer; () gives a linear model.

    Examples
    --------
    >>> from skbayesnn import MCDropoutRegressor
    >>> from skbayesnn.networks import MLP
    >>> model = MCDropoutRegressor(network=MLP((20,)))
    >>> model.get_params()["network__hidden_layer_sizes"]
    (20,)
    """

    def __init__(self, hidden_layer_sizes=(50, 50)) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """Empty: rows are flat."""
        return []

    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """Build a perceptron."""
        sizes = n_features, *hidden_sizes(self.hidden_layer_sizes), n_outputs
        return Perceptron(sizes, activation)


class ConvNet(NetworkDescription):
    """Convolutional network for images: convolutions with pooling, then a perceptron.

    The posterior is over the kernels: one draw serves all positions of an image [1]_.
    With MC dropout, units are dropped in the image and after the pooling of every
    convolution.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width of an image. X is (n_samples, channels, height,
        width), or flat in this order; with one channel also (n_samples, height, width).
        With ``standardize`` all pixels of a channel share one mean and one standard
        deviation.
    channels : sequence of int, default=(16, 32)
        Output channels of each convolution.
    kernel_size : int or sequence of int, default=3
        Height and width of the kernels. Images are padded with zeros and keep their
        size.
    pool : int or sequence of int, default=2
        Height and width of the max pooling after each convolution; 1 is no pooling.
    hidden_layer_sizes : int or sequence of int, default=(64,)
        Units of each hidden layer of the perceptron.
    mask_per : {"unit", "channel"}, default="unit"
        What a dropout mask drops after a convolution: ``"unit"``, single positions of a
        channel; ``"channel"``, whole channels [2]_. In the image, single pixels are
        dropped. Posteriors without masks, such as Bayes by Backprop, ignore this.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Bayesian convolutional neural networks with
       Bernoulli approximate variational inference", arXiv:1506.02158.
    .. [2] Tompson et al. (2015), "Efficient object localization using convolutional
       networks", arXiv:1411.4280.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skbayesnn import MCDropoutClassifier
    >>> from skbayesnn.networks import ConvNet
    >>> digits = load_digits()
    >>> net = ConvNet(image_shape=(1, 8, 8), channels=(8,))
    >>> model = MCDropoutClassifier(network=net, max_iter=3, random_state=0)
    >>> model = model.fit(digits.images[:500], digits.target[:500])
    >>> model.predict(digits.data[:2]).shape
    (2,)
    """

    def __init__(
        self,
        image_shape,
        channels=(16, 32),
        kernel_size=3,
        pool=2,
        hidden_layer_sizes=(64,),
        mask_per="unit",
    ) -> None:
        self.image_shape = image_shape
        self.channels = channels
        self.kernel_size = kernel_size
        self.pool = pool
        self.hidden_layer_sizes = hidden_layer_sizes
        self.mask_per = mask_per

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """Shape of an image; with one channel also without the channel axis."""
        shape = _integers("image_shape", self.image_shape)
        if len(shape) != 3:
            raise ValueError(
                "`image_shape` must be (channels, height, width); got "
                f"{self.image_shape!r}. One channel is (1, height, width)."
            )
        return [shape, shape[1:]] if shape[0] == 1 else [shape]

    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """Build a convolutional network, after checking the parameters."""
        shape, *_ = self.row_shapes
        _check_columns(f"image_shape={shape}", math.prod(shape), n_features)
        channels = _integers("channels", self.channels)
        for n_channels in channels:
            layer_size("channels", n_channels)
        if not channels:
            raise ValueError(
                "`channels` must have one entry for at least one convolution; got (). "
                "Without convolutions, set network=MLP(hidden_layer_sizes)."
            )
        kernel_sizes, pools = (
            _per_convolution(name, getattr(self, name), len(channels))
            for name in ("kernel_size", "pool")
        )
        self._check_pools(shape, pools)
        return Convolutional(
            image_shape=(shape[0], shape[1], shape[2]),
            channels=channels,
            kernel_sizes=kernel_sizes,
            pools=pools,
            hidden=hidden_sizes(self.hidden_layer_sizes),
            n_outputs=n_outputs,
            activation=activation,
            mask_per=check_option("mask_per", self.mask_per, ["unit", "channel"]),
        )

    def _check_pools(self, shape, pools):
        _, height, width = shape
        for i, pool in enumerate(pools):
            if pool > min(height, width):
                raise ValueError(
                    f"`pool` of convolution {i + 1} must be at most as large as the "
                    f"image there, {height} x {width}; got {self.pool!r}. Use fewer "
                    "convolutions, or pool=1 for some of them."
                )
            height, width = height // pool, width // pool


class RecurrentNet(NetworkDescription):
    """Recurrent network for sequences: a cell, then a perceptron on its last state.

    One draw of the weights is used for all steps of a sequence [1]_: a dropped unit is
    dropped at every step. With MC dropout, every row of a training step has its own
    masks for inputs and state, which all gates share. With other posteriors, all rows
    of a training step share a draw. If a sequence has one input, a mask on the inputs
    drops the whole sequence: ``dropout=(0, 0.01, 0.01)`` avoids such masks.
    ``length_scale="auto"`` and ``"fan_in"`` use 1 for the state's weights.

    Parameters
    ----------
    n_steps, n_inputs : int
        Length of the sequences, and inputs per step. X is (n_samples, n_steps,
        n_inputs), or flat: all inputs of the first step, then of the second, and so on.
        With ``standardize`` an input has one mean and one standard deviation over all
        steps.
    hidden_size : int, default=32
        Units of the state.
    cell : {"rnn", "gru", "lstm"}, default="rnn"
        Simple tanh cell [2]_, gated recurrent unit [3]_, or long short-term memory
        [4]_.
    hidden_layer_sizes : int or sequence of int, default=()
        Units of each hidden layer of the perceptron, which has the estimator's
        ``activation``.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "A theoretically grounded application of dropout in
       recurrent neural networks", arXiv:1512.05287.
    .. [2] Elman (1990), "Finding structure in time", Cognitive Science 14.
    .. [3] Cho et al. (2014), "Learning phrase representations using RNN
       encoder-decoder", arXiv:1406.1078.
    .. [4] Hochreiter & Schmidhuber (1997), "Long short-term memory", Neural
       Computation 9.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayesnn import MCDropoutRegressor
    >>> from skbayesnn.networks import RecurrentNet
    >>> waves = np.sin(np.arange(1000) / 5)
    >>> X = np.lib.stride_tricks.sliding_window_view(waves[:-1], 24)[..., None]
    >>> net = RecurrentNet(n_steps=24, n_inputs=1, hidden_size=8)
    >>> model = MCDropoutRegressor(network=net, max_iter=5, random_state=0)
    >>> model.fit(X, waves[24:]).predict(X[:3]).shape
    (3,)
    """

    def __init__(
        self, n_steps, n_inputs, hidden_size=32, cell="rnn", hidden_layer_sizes=()
    ) -> None:
        self.n_steps = n_steps
        self.n_inputs = n_inputs
        self.hidden_size = hidden_size
        self.cell = cell
        self.hidden_layer_sizes = hidden_layer_sizes

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """Number of steps, and number of inputs per step."""
        names = ("n_steps", "n_inputs")
        return [tuple(_positive(name, getattr(self, name)) for name in names)]

    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """Build a recurrent network, after checking the parameters."""
        [(n_steps, n_inputs)] = self.row_shapes
        shape = f"n_steps={n_steps}, n_inputs={n_inputs}"
        _check_columns(shape, n_steps * n_inputs, n_features)
        return Recurrent(
            n_steps=n_steps,
            n_inputs=n_inputs,
            hidden_size=layer_size("hidden_size", self.hidden_size),
            cell=check_option("cell", self.cell, list(CELLS)),
            hidden=hidden_sizes(self.hidden_layer_sizes),
            n_outputs=n_outputs,
            activation=activation,
        )


def _check_columns(shape: str, n_expected: int, n_features: int) -> None:
    if n_expected != n_features:
        raise ValueError(
            f"the network has {shape}, which is {n_expected} values per row of `X`; "
            f"got n_features={n_features}. Set it to the shape of the rows."
        )


def _positive(name: str, value) -> int:
    return check_number(name, value, kind=Integral, low=1)


def _integers(name: str, value) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(f"`{name}` must be a sequence of integers; got {value!r}.")
    return tuple(_positive(name, item) for item in value)


def _per_convolution(name: str, value, n_convolutions: int) -> tuple[int, ...]:
    """Expand an integer to all convolutions, or check one integer per convolution."""
    if isinstance(value, Integral):
        return (_positive(name, value),) * n_convolutions
    values = _integers(name, value)
    if len(values) != n_convolutions:
        raise ValueError(
            f"`{name}` must be an integer or have one for each convolution: "
            f"{n_convolutions} here (see channels); got {len(values)}: {value!r}."
        )
    return values
