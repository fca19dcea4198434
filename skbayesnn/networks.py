"""Networks for the estimators' ``network``: perceptron, convolutions, recurrence.

Small objects of plain parameters, with ``get_params`` and ``set_params``, so that a
search may look for ``network__channels`` as it does for any parameter.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral

import numpy as np

from skbayesnn._networks import MLP as Perceptron
from skbayesnn._networks import Convolutional, Network, Recurrent
from skbayesnn._networks.recurrent import CELLS
from skbayesnn._sklearn_compat import BaseEstimator
from skbayesnn._validation import check_number, check_option, hidden_sizes, layer_size

__all__ = ["MLP", "ConvNet", "NetworkDescription", "RecurrentNet"]


class NetworkDescription(BaseEstimator, ABC):
    """Base of the networks: what they are, before there are data.

    Parameters
    ----------
    Of each its own, stored by ``__init__`` as they are given.
    """

    def __eq__(self, other):
        """Of the same kind, with equal parameters."""
        if type(self) is not type(other):
            return False
        own, others = self.get_params(), other.get_params()
        return all(np.array_equal(own[name], others[name]) for name in own)

    @property
    @abstractmethod
    def row_shapes(self) -> list[tuple[int, ...]]:
        """Shapes that a row of X may have, beside a flat one."""

    @abstractmethod
    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """The network of this many columns and outputs, still without families."""


class MLP(NetworkDescription):
    """Layers of linear maps with an activation between them.

    What the estimators are with ``network=None``.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50, 50)
        Units of each hidden layer; () is a linear model.

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
        """A row is flat."""
        return []

    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """A perceptron."""
        sizes = n_features, *hidden_sizes(self.hidden_layer_sizes), n_outputs
        return Perceptron(sizes, activation)


class ConvNet(NetworkDescription):
    """Convolutions with pooling, then a perceptron.

    The posterior is over the kernels: one draw serves all places of an image [1]_.
    Where units are dropped (MC dropout), that is behind every convolution and its
    pooling, and in the image itself.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width of an image. X is (n_samples, channels, height,
        width), or flat, in that order; with one channel also (n_samples, height,
        width). With ``standardize`` the pixels of a channel have one mean and one std.
    channels : sequence of int, default=(16, 32)
        That each convolution makes.
    kernel_size : int or sequence of int, default=3
        Height and width of the patches that are looked at; there are zeros around the
        image, which keeps its size.
    pool : int or sequence of int, default=2
        Height and width of the squares whose largest value is kept behind a
        convolution; 1 keeps all.
    hidden_layer_sizes : int or sequence of int, default=(64,)
        Of the perceptron.
    mask_per : {"unit", "channel"}, default="unit"
        What has a mask of its own behind a convolution: a channel at one place, or as
        a whole [2]_. (Pixels of the image have their own.) Of noise on the weights,
        as that of Bayes by Backprop, there are no masks.

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
        """Of an image; without channels where there is one."""
        shape = _integers("image_shape", self.image_shape)
        if len(shape) != 3:
            raise ValueError(
                "`image_shape` must be (channels, height, width); got "
                f"{self.image_shape!r}. One channel is (1, height, width)."
            )
        return [shape, shape[1:]] if shape[0] == 1 else [shape]

    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """Convolutions, checked."""
        shape, *_ = self.row_shapes
        _check_columns(f"image_shape={shape}", math.prod(shape), n_features)
        channels = _integers("channels", self.channels)
        for number in channels:
            layer_size("channels", number)
        if not channels:
            raise ValueError(
                "`channels` must name at least one convolution's; got (). Without "
                "any, set network=MLP(hidden_layer_sizes)."
            )
        kernel_sizes, pools = (
            _of_each(name, getattr(self, name), len(channels))
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
                    f"image there, {height} x {width}; got {self.pool!r}. Take fewer "
                    "convolutions, or pool=1 in some of them."
                )
            height, width = height // pool, width // pool


class RecurrentNet(NetworkDescription):
    """A recurrent cell that reads a sequence, then a perceptron on its last state.

    One draw of the weights holds for all steps of a sequence [1]_: a unit that is
    dropped is dropped at every step. Where units are dropped (MC dropout), every row
    of a training step has masks of its own, for the inputs and for the state; all gates
    share them. Of the other posteriors all rows of a training step share a draw. A
    sequence of one input is lost as a whole where that is dropped: ``dropout=(0, 0.01,
    0.01)`` has no masks on the inputs. ``length_scale="auto"`` and ``"fan_in"`` are 1
    for the state's weights.

    Parameters
    ----------
    n_steps, n_inputs : int
        Of every sequence. X is (n_samples, n_steps, n_inputs), or flat: the inputs of
        the first step, of the second, and so on. With ``standardize`` an input has one
        mean and one std over all steps.
    hidden_size : int, default=32
        Units of the state.
    cell : {"rnn", "gru", "lstm"}, default="rnn"
        A tanh of the inputs and the state [2]_, gated recurrent units [3]_, or long
        short-term memory [4]_.
    hidden_layer_sizes : int or sequence of int, default=()
        Of the perceptron, with the estimator's ``activation``.

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
        """Steps, and inputs of each."""
        names = ("n_steps", "n_inputs")
        return [tuple(_positive(name, getattr(self, name)) for name in names)]

    def build(self, n_features: int, n_outputs: int, activation: str) -> Network:
        """A cell and what is behind it, checked."""
        [(n_steps, n_inputs)] = self.row_shapes
        said = f"n_steps={n_steps}, n_inputs={n_inputs}"
        _check_columns(said, n_steps * n_inputs, n_features)
        return Recurrent(
            n_steps=n_steps,
            n_inputs=n_inputs,
            hidden_size=layer_size("hidden_size", self.hidden_size),
            cell=check_option("cell", self.cell, list(CELLS)),
            hidden=hidden_sizes(self.hidden_layer_sizes),
            n_outputs=n_outputs,
            activation=activation,
        )


def _check_columns(said: str, wanted: int, n_features: int) -> None:
    if wanted != n_features:
        raise ValueError(
            f"the network has {said}, which is {wanted} numbers in each row of `X`; "
            f"got n_features={n_features}. Set it to the shape of the rows."
        )


def _positive(name: str, value) -> int:
    return check_number(name, value, kind=Integral, low=1)


def _integers(name: str, value) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(f"`{name}` must be a sequence of integers; got {value!r}.")
    return tuple(_positive(name, each) for each in value)


def _of_each(name: str, value, n: int) -> tuple[int, ...]:
    """An integer for all convolutions, or one of each."""
    if isinstance(value, Integral):
        return (_positive(name, value),) * n
    values = _integers(name, value)
    if len(values) != n:
        raise ValueError(
            f"`{name}` must be an integer or hold one for each convolution: {n} here "
            f"(see channels); got {len(values)}: {value!r}."
        )
    return values
