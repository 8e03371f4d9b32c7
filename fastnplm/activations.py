"""What the steps of a network hand on, forwards and backwards, for callers who look at each."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Activations:
    """What ``forward`` computed, each (B, its width): the argument ``backward`` needs.

    upper : (inputs, outputs) of each layer above the first; features : the layer below the scores.
    """

    contexts: np.ndarray
    inputs: np.ndarray
    preactivation: np.ndarray
    hidden: np.ndarray
    upper: list
    features: np.ndarray
    scores: np.ndarray


@dataclasses.dataclass
class Gradients:
    """Gradients of the weighted loss: ``gradients["hidden_weight"]`` or ``.hidden_weight``.

    The embedding's stands by rows: embedding_ids (U,), distinct; embedding_rows (U, M).
    losses : float64 (B,), nats; hidden and inputs : of the activations of these names.
    """

    losses: np.ndarray
    embedding_ids: np.ndarray
    embedding_rows: np.ndarray
    parameters: dict
    hidden: np.ndarray
    inputs: np.ndarray

    def __getitem__(self, name):
        return self.parameters[name]

    def __getattr__(self, name):
        try:
            return self.__dict__["parameters"][name]
        except KeyError:
            raise AttributeError(f"there is no gradient of {name!r}") from None
