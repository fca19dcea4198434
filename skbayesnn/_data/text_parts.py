"""Parts of the text of categories: n-grams of characters, for similar levels.

"Police Officer III" and "Master Police Officer" share most of their parts, and so do
neighbouring ZIP codes. Statistics of y of such levels are similar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy import sparse

from skbayesnn._stored import Floats

# Lengths of the parts, in characters; a part does not extend beyond a word.
LENGTHS = (1, 4)
# Parts in fewer levels than this are not used.
MIN_LEVELS = 2
# Largest number of parts of a column: the most frequent ones.
MAX_PARTS = 4000
# Largest number of principal components of the parts.
MAX_COMPONENTS = 200
# Largest number of levels that determine the parts and components.
MAX_LEVELS = 3000
# Largest number of levels with which new texts are compared. 500 take 10 ms.
MAX_COMPARED = 500
# Characters of a text that are read.
MAX_LENGTH = 200
# Texts that are compared with the levels at once.
BLOCK = 256


@dataclass(frozen=True)
class TextParts:
    """Weights of the parts of a text: the tf-idf features of scikit-learn.

    Parameters
    ----------
    vocabulary : tuple of str
    idf : ndarray of shape (parts,)
        Inverse document frequency of each part.
    """

    vocabulary: Annotated[tuple[str, ...], "parts"]
    idf: Annotated[Floats, "parts"]

    def __call__(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Features of texts, (texts, parts); a text without known parts is zero."""
        vectorizer = _vectorizer(vocabulary=self.vocabulary)
        vectorizer.idf_ = self.idf
        return vectorizer.transform(_cut(texts))

    def similarities(self, texts: Sequence[str], levels: Sequence[str]) -> np.ndarray:
        """Cosine of each text and the most similar level, (texts,), from 0 to 1."""
        of_levels = self(_sample(levels, MAX_COMPARED)).T
        blocks = [
            (self(texts[start : start + BLOCK]) @ of_levels).max(axis=1).toarray()
            for start in range(0, len(texts), BLOCK)
        ]
        return np.clip(np.concatenate(blocks)[:, 0], 0, 1)


class TextComponents:
    """Principal components of the parts of all levels of a column.

    Parameters
    ----------
    parts : TextParts
    levels : sequence of str
        The components are from these levels.
    """

    def __init__(self, parts: TextParts, levels: Sequence[str]) -> None:
        self.parts = parts
        self._features = parts(_sample(levels))

    @cached_property
    def _axes(self) -> np.ndarray:
        """Principal axes, (parts, components)."""
        from sklearn.utils.extmath import randomized_svd

        most = min(MAX_COMPONENTS, *self._features.shape)
        # The random numbers affect only the last components.
        _, size, axes = randomized_svd(
            self._features, most, n_iter=4, random_state=0, flip_sign=True
        )
        return axes[size > 1e-6 * size[0]].T

    def __call__(self, levels: Sequence[str]) -> np.ndarray:
        """Components of levels, (levels, components)."""
        return self.parts(levels) @ self._axes

    def coefficients(self, of_components: np.ndarray) -> np.ndarray:
        """Coefficients of the parts, of a linear function of the components."""
        return self._axes @ of_components


def fit_parts(levels: Sequence[str]) -> TextParts | None:
    """Parts of the levels, or None if no two levels share a part."""
    vectorizer = _vectorizer(min_df=MIN_LEVELS, max_features=MAX_PARTS)
    try:
        vectorizer.fit(_cut(_sample(levels)))
    except ValueError:  # no parts
        return None
    # A space is a part of every text.
    vocabulary = [str(part) for part in vectorizer.get_feature_names_out()]
    known = [i for i, part in enumerate(vocabulary) if part.strip()]
    if not known:
        return None
    return TextParts(tuple(vocabulary[i] for i in known), vectorizer.idf_[known])


def _vectorizer(**params):
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        analyzer="char_wb", ngram_range=LENGTHS, sublinear_tf=True, **params
    )


def _cut(texts: Sequence[str]) -> list[str]:
    """The beginning of each text."""
    return [text[:MAX_LENGTH] for text in texts]


def _sample(levels: Sequence[str], most: int = MAX_LEVELS) -> list[str]:
    """At most ``most`` of the levels, the same ones for the same levels."""
    if len(levels) <= most:
        return list(levels)
    chosen = np.random.RandomState(0).choice(len(levels), most, replace=False)
    return [levels[i] for i in np.sort(chosen)]
