"""Turn a text column into TF-IDF features."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

_WORD = re.compile(r"\w\w+")
MIN_DOCUMENTS = 2
"""Words in fewer texts are ignored: they are not shared with any other node."""
MAX_WORDS = 20_000
"""Maximum number of words: those that occur in the most texts are kept."""


def words_of(text: str) -> list[str]:
    """Return the words of a text: two or more letters, digits or underscores, in lower case."""
    return _WORD.findall(text.lower())


def word_weights(texts: Sequence[str]) -> dict[str, float]:
    """Return the inverse document frequency of the words to use, in alphabetical order.

    With N texts of which n(w) contain word w, ``idf(w) = ln((1 + N) / (1 + n(w))) + 1``. Words that occur in
    only one text are ignored (unless there are no others), and at most 20,000 words are kept.
    """
    documents: Counter[str] = Counter()
    for text in texts:
        documents.update(set(words_of(text)))
    least = MIN_DOCUMENTS if any(count >= MIN_DOCUMENTS for count in documents.values()) else 1
    frequent = [(-count, word) for word, count in documents.items() if count >= least]
    if len(frequent) > MAX_WORDS:
        frequent = sorted(frequent)[:MAX_WORDS]
    size = len(texts)
    return {word: math.log((1 + size) / (1 + documents[word])) + 1 for word in sorted(w for _, w in frequent)}


def tfidf(texts: Iterable[str], idf: Mapping[str, float]) -> Any:
    """Return ``x(i, w) = f(i, w) idf(w)``, where word w occurs f(i, w) times in text i; not normalised.

    Shapes: N texts, W words in ``idf``; result CSR (N, W), float32.
    """
    number = {word: k for k, word in enumerate(idf)}
    crow, column = array("q", [0]), array("q")
    for text in texts:
        column.extend([number[word] for word in words_of(text) if word in number])
        crow.append(len(column))
    values = np.array(list(idf.values()), dtype=np.float32)[np.array(column, dtype=np.int64)]
    weighted = sp.csr_array(
        (values, np.array(column, dtype=np.int64), np.array(crow, dtype=np.int64)),
        shape=(len(crow) - 1, len(idf)),
    )
    weighted.sum_duplicates()
    return weighted
