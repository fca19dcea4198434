"""Networks of images and sequences that take rows of any number of columns."""

from skbayesnn.networks import ConvNet, RecurrentNet


class AnyImage(ConvNet):
    """An image of one row, as wide as X."""

    def __init__(self, channels=(3,), pool=1):
        super().__init__((1, 1, 1), channels=channels, pool=pool)

    def get_params(self, deep=True):
        return {"channels": self.channels, "pool": self.pool}

    row_shapes = ()

    def build(self, n_features, n_outputs, activation):
        image = ConvNet((1, 1, n_features), self.channels, pool=self.pool)
        return image.build(n_features, n_outputs, activation)


class AnySequence(RecurrentNet):
    """A sequence with one column per step."""

    def __init__(self, hidden_size=3):
        super().__init__(1, 1, hidden_size)

    def get_params(self, deep=True):
        return {"hidden_size": self.hidden_size}

    row_shapes = ()

    def build(self, n_features, n_outputs, activation):
        sequence = RecurrentNet(n_features, 1, self.hidden_size)
        return sequence.build(n_features, n_outputs, activation)
