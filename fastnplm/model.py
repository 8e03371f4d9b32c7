"""The network of Bengio et al. 2003: its parameters, its four equations and their gradients.

x      = concat(embedding[w_1], ..., embedding[w_N])                     (N*M,)
hidden = tanh(hidden_weight @ x + hidden_bias)                            (H,)
score  = output_weight @ hidden + output_bias (+ direct_weight @ x)       (V,)   tied: see Network
p      = softmax(score)
"""

import zlib

import numpy as np

from . import arrays, hashing, noise
from . import kernels as kernel_modules
from . import loss as losses
from .activations import Activations, Gradients
from .errors import IdError, ModelError, SettingsError
from .numeric import is_whole

EMBEDDING_RANGE = 0.1  # uniform +-0.1, as the tutorials begin
_ROWS = 1 << 14  # rows drawn at a time, so that no second table is ever allocated


class Network:
    """The parameters and the equations; ``NPLM`` adds what users ask of a trained model.

    Parameters
    ----------
    vocabulary : Vocabulary
    context : N, how many words before the predicted one are read, at least 1
    dim : M, width of an embedding row
    hidden : H, units of the tanh layer; 0, for direct connections alone, leaves it out
    direct : bool, adds the direct connections from the embeddings to the scores; of a tied model,
        to the projection (M x N*M weights instead of V x N*M)
    layers : 1, or 2 for a second tanh layer with a residual connection (``layers.py``)
    tied : bool, the embedding is the output weight too (Press and Wolf 2017); where M differs
        from H, or with ``direct``, a layer of M units stands between, the projection: tanh's,
        with ``direct`` linear
    hashed : rows of the table of hashed n-grams (``hashing.py``), 0 for none; each is as wide as
        the layer below the scores, direct connections to them left out. Needs a context of at
        least 3 words, and hidden units
    dtype : "float32" or "float64" (through the reference kernels)
    output_bias : "unigram" (log of the words' shares in the training text) or "zeros"
    seed : of the initial values; None leaves them 0, for a caller who fills them in

    The parameters are attributes under the names of the equations, shapes as there:
    ``embedding`` (V, M), ``hidden_weight`` (H, N*M), ``hidden_bias`` (H,), ``output_weight``
    (V, H), ``output_bias`` (V,), ``direct_weight`` (V, N*M) or None; of a tied model
    ``projection_weight`` (M, H), or (M, H + N*M) with ``direct``; ``hashed_weight`` (hashed, H), if
    tied (hashed, M), or None. Reading one gives the live array; assigning copies values in.
    """

    def __init__(
        self,
        vocabulary,
        context=4,
        dim=100,
        hidden=200,
        direct=False,
        layers=1,
        tied=False,
        hashed=0,
        dtype="float32",
        output_bias="unigram",
        seed=0,
    ):
        least = {"context": 1, "dim": 1, "hidden": 0 if direct and layers == 1 else 1}
        for name, value in (("context", context), ("dim", dim), ("hidden", hidden)):
            if not is_whole(value, least[name]):
                raise SettingsError(
                    f"{name} is {value!r}; expected a whole number of at least {least[name]}"
                )
        if seed is not None and not is_whole(seed, 0):
            raise SettingsError(f"seed is {seed!r}; expected a whole number of at least 0, or None")
        hashing.require_table(hashed, context, hidden)
        if layers not in (1, 2):
            raise SettingsError(f"layers is {layers!r}; expected 1 or 2")
        if np.dtype(dtype).name not in ("float32", "float64"):
            raise SettingsError(f"dtype is {dtype!r}; expected float32 or float64")
        if output_bias not in ("unigram", "zeros"):
            raise SettingsError(f"output_bias is {output_bias!r}; expected unigram or zeros")
        self.vocabulary = vocabulary
        self.context, self.dim, self.hidden = int(context), int(dim), int(hidden)
        self.direct, self.layers, self.tied = bool(direct), int(layers), bool(tied)
        self.hashed = int(hashed)
        self.dtype = np.dtype(dtype)
        self.loss = losses.Softmax()
        size, inputs = len(vocabulary), self.context * self.dim
        self._parameters = {"embedding": self._zeros(size, self.dim)}
        if self.hidden:
            self._add_layer("hidden", self.hidden, inputs)
        if self.layers == 2:
            self._add_layer("second", self.hidden, self.hidden)
        if self.tied and (self.direct or self.dim != self.hidden):
            below = self.hidden + (inputs if self.direct else 0)
            self._add_layer("projection", self.dim, below)
        if self.hashed:  # all 0: an n-gram says nothing before it was seen
            self._parameters["hashed_weight"] = self._zeros(
                self.hashed, self.dim if self.tied else self.hidden
            )
        # Direct connections are more columns of the output layer, over concat(hidden, x): one
        # array, so that one kernel updates both.
        if self.tied:
            self.output = self._parameters["embedding"]
        else:
            self.output = self._zeros(size, self.features)
            if self.hidden:
                self._parameters["output_weight"] = self.output[:, : self.hidden]
        self._parameters["output_bias"] = self._zeros(size)
        if self.scores_inputs:
            self._parameters["direct_weight"] = self.output[:, self.hidden :]
        if seed is not None:
            self._initialise(seed)
        if output_bias == "unigram":
            self._parameters["output_bias"][:] = noise.log_unigram(vocabulary)

    def _zeros(self, *shape):
        return arrays.zeros(shape, self.dtype)

    def _add_layer(self, name, units, inputs):
        self._parameters[f"{name}_weight"] = self._zeros(units, inputs)
        self._parameters[f"{name}_bias"] = self._zeros(units)

    def _initialise(self, seed):
        ranges = {
            "embedding": EMBEDDING_RANGE,
            "output_weight": 1
            / max(self.hidden, 1),  # small: the first predictions are the unigram's
            "direct_weight": 1 / (self.context * self.dim),
        }
        for name in ("hidden_weight", "second_weight", "projection_weight"):
            if name in self._parameters:  # Glorot and Bengio 2010
                ranges[name] = np.sqrt(6 / sum(self._parameters[name].shape))
        for name, value in self._parameters.items():
            if name in ranges:
                generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
                for low in range(0, len(value), _ROWS):
                    rows = value[low : low + _ROWS]
                    rows[:] = generator.uniform(-ranges[name], ranges[name], size=rows.shape)

    @property
    def features(self):
        """Width of the layer below the scores: H; M if tied; H + N*M with direct connections."""
        if self.tied:
            return self.dim
        return self.hidden + (self.context * self.dim if self.direct else 0)

    @property
    def scores_inputs(self):
        """Whether the direct connections reach the scores, beside the hidden layer: not if tied."""
        return self.direct and not self.tied

    @property
    def parameters(self):
        """The parameters by name, in the order of the equations: live arrays."""
        return dict(self._parameters)

    @property
    def trainable(self):
        """The arrays that training updates, by name: as ``parameters``, the output layer whole."""
        columns = ("output_weight", "direct_weight")
        arrays = {k: v for k, v in self._parameters.items() if k not in columns}
        return arrays if self.tied else arrays | {"output": self.output}

    @property
    def optimized(self):
        """The ``trainable`` arrays that follow the optimiser: all but the hashed n-grams'."""
        return {name: v for name, v in self.trainable.items() if name != "hashed_weight"}

    def config(self):
        """What it takes to build this network again, apart from vocabulary and parameters."""
        return {
            "context": self.context,
            "dim": self.dim,
            "hidden": self.hidden,
            "direct": self.direct,
            "layers": self.layers,
            "tied": self.tied,
            "loss": losses.to_config(self.loss),
            # left out where there are none: as it was written before there were any
            **({"hashed": self.hashed} if self.hashed else {}),
        }

    def kernels(self, name="auto"):
        """The kernel module for this network's dtype: float64 runs on the reference alone."""
        if self.dtype == np.float64:
            if name not in ("auto", "reference"):
                raise SettingsError(f"kernels={name} are float32; a float64 model needs reference")
            name = "reference"
        return kernel_modules.load(name)

    def contexts(self, contexts):
        """Any array-like of ids as int32 (B, N); refuses ids outside the vocabulary."""
        given = np.atleast_2d(np.asarray(contexts))
        if given.ndim != 2 or given.shape[1] != self.context:
            raise ModelError(
                f"contexts has {given.shape[-1]} words a row, but this model reads"
                f" {self.context}; make the batches with context={self.context}"
            )
        return self.ids("contexts", given)

    def ids(self, name, values):
        """Any array-like of whole numbers as int32 ids, each checked before it is narrowed."""
        given = np.asarray(values)
        if given.size and given.dtype.kind not in "iu":
            raise ModelError(f"{name} has dtype {given.dtype}; expected whole numbers (word ids)")
        bad = (given < 0) | (given >= len(self.vocabulary))
        if bad.any():
            where = int(np.flatnonzero(bad.reshape(-1))[0])
            raise IdError(
                f"{name} holds {given.reshape(-1)[where]} at position {where};"
                f" ids are in [0, {len(self.vocabulary)})"
            )
        return np.require(given, dtype=np.int32, requirements=["C", "A"])

    def forward(self, contexts, kernels="auto"):
        """The equations up to the scores, step by step. Scores are the trained ones, (B, V).

        contexts : whole numbers (B, N), ids in [0, V). Raises IndexError for an id outside.
        """
        contexts = self.contexts(contexts)
        kernel = self.kernels(kernels)
        batch = len(contexts)
        inputs = np.empty((batch, self.context * self.dim), dtype=self.dtype)
        rows = inputs.reshape(batch * self.context, self.dim)
        kernel.gather_rows(contexts.reshape(-1), self.embedding, rows)
        preactivation = np.zeros((batch, 0), dtype=self.dtype)
        if self.hidden:
            preactivation = inputs @ self.hidden_weight.T
        hidden = preactivation.copy()
        if self.hidden:
            kernel.bias_tanh(self.hidden_bias, hidden)
            preactivation += self.hidden_bias
        features, upper = hidden, []
        for name in self.upper_layers():
            joined = self.reads_vectors(name)
            if joined:
                features = np.concatenate([features, inputs], axis=1)
            above = features @ self._parameters[f"{name}_weight"].T
            if joined:
                above += self._parameters[f"{name}_bias"]
            else:
                kernel.bias_tanh(self._parameters[f"{name}_bias"], above)
            upper.append((features, above))
            features = features + above if name == "second" else above
        if self.hashed:
            features = features.copy()
            hashing.add(contexts, self.hashed_weight, features)
        if self.scores_inputs:
            features = np.concatenate([features, inputs], axis=1)
        scores = features @ self.output.T + self.output_bias
        return Activations(contexts, inputs, preactivation, hidden, upper, features, scores)

    def backward(self, activations, targets, weights=None, kernels="auto"):
        """Loss and gradients of the exact softmax, step by step; nothing is updated.

        targets : whole numbers (B,); weights : (B,), default 1/B; 0 ignores an example.
        """
        kernel = self.kernels(kernels)
        targets = self.ids("targets", targets)
        batch = len(activations.contexts)
        if weights is None:
            weights = np.full(batch, 1 / max(batch, 1))
        weights = np.ascontiguousarray(weights, dtype=self.dtype)
        grad_scores = activations.scores - self.output_bias
        found = np.empty(batch)
        kernel.softmax_cross_entropy(targets, weights, self.output_bias, found, grad_scores)
        grads = {"output_bias": grad_scores.sum(axis=0)}
        grad_output = grad_scores.T @ activations.features
        grad_features = grad_scores @ self.output
        grad_hidden, grad_direct = grad_features, 0
        if self.scores_inputs:
            grad_hidden, grad_direct = np.split(grad_features, [self.hidden], axis=1)
        if self.hashed:
            grads["hashed_weight"] = np.zeros_like(self.hashed_weight)
            for column in hashing.rows_of(activations.contexts, self.hashed).T:
                np.add.at(grads["hashed_weight"], column, grad_hidden)
        for name, (below, above) in zip(
            reversed(self.upper_layers()), reversed(activations.upper), strict=True
        ):
            passed_by = grad_hidden if name == "second" else 0
            grad_hidden = self._layer_backward(kernel, name, below, above, grad_hidden, grads)
            grad_hidden = grad_hidden + passed_by
            if self.reads_vectors(name):
                grad_hidden, grad_direct = np.split(grad_hidden, [self.hidden], axis=1)
        inputs, hidden = activations.inputs, activations.hidden
        grad_inputs = np.zeros_like(inputs) + grad_direct
        if self.hidden:
            grad_inputs += self._layer_backward(
                kernel, "hidden", inputs, hidden, grad_hidden, grads
            )
        ids, which = np.unique(activations.contexts, return_inverse=True)
        rows = np.zeros((len(ids), self.dim), dtype=self.dtype)
        np.add.at(rows, which.reshape(-1), grad_inputs.reshape(-1, self.dim))
        if self.tied:  # the embedding's gradient has a part from each of its two roles
            grad_output[ids] += rows
            ids, rows = np.arange(len(grad_output)), grad_output
        else:
            if self.hidden:
                grads["output_weight"] = grad_output[:, : self.hidden]
            if self.scores_inputs:
                grads["direct_weight"] = grad_output[:, self.hidden :]
        return Gradients(found, ids, rows, grads, grad_hidden, grad_inputs)

    def upper_layers(self):
        """Names of the layers above the first, lowest first."""
        return [n for n in ("second", "projection") if f"{n}_weight" in self._parameters]

    def reads_vectors(self, name):
        """Whether the layer ``name`` is linear and reads concat(hidden, x): see ``layers``."""
        return name == "projection" and self.direct

    def _layer_backward(self, kernel, name, below, above, grad, grads):
        """Back through one layer: its gradients into ``grads``; that of its inputs back."""
        grad = np.ascontiguousarray(grad).copy()
        weight = self._parameters[f"{name}_weight"]
        if self.reads_vectors(name):
            grads[f"{name}_bias"] = grad.sum(axis=0)
        else:
            grads[f"{name}_bias"] = np.empty(len(weight), dtype=self.dtype)
            kernel.tanh_backward(above, grads[f"{name}_bias"], grad)
        grads[f"{name}_weight"] = grad.T @ below
        return grad @ weight

    def apply(self, gradients, learning_rate):
        """Plain gradient descent: every parameter minus ``learning_rate`` times its gradient."""
        rows = learning_rate * gradients.embedding_rows
        self.embedding[gradients.embedding_ids] -= rows.astype(self.dtype)
        for name, value in self._parameters.items():
            if name != "embedding":
                value -= (learning_rate * gradients[name]).astype(self.dtype)

    def probability_bias(self):
        """The output bias with which softmax(scores) is the probability, whatever the loss.

        For negative sampling log(K q) is added: p is proportional to q * e^s.
        """
        shift = self.loss.shift(self.vocabulary)
        return np.ascontiguousarray(self.output_bias + shift, dtype=self.dtype)

    def adopt(self, loss):
        """Prepare for training with another loss: the bias shifts so that scores keep their sense.

        A score means log p under softmax and nce, log p - log(K q) under ns.
        """
        change = self.loss.shift(self.vocabulary) - loss.shift(self.vocabulary)
        self._parameters["output_bias"] += np.asarray(change).astype(self.dtype)
        self.loss = loss

    def require_finite(self, when):
        """Raise ModelError if a parameter holds a number that is not finite."""
        for name, value in self._parameters.items():
            for low in range(0, len(value), _ROWS):
                if not np.isfinite(value[low : low + _ROWS]).all():
                    raise ModelError(f"{name} holds a number that is not finite {when}")


def _parameter(name):
    def read(network):
        return network._parameters.get(name)

    def write(network, values):
        target = network._parameters.get(name)
        given = np.asarray(values)
        if target is None:
            raise ModelError(f"this model has no {name}")
        if given.shape != target.shape:
            raise ModelError(f"{name} has shape {target.shape}; the given values {given.shape}")
        if given.dtype.kind not in "fiub":
            raise ModelError(f"{name} holds real numbers; the given values have {given.dtype}")
        target[...] = given

    return property(read, write, doc=f"The parameter ``{name}``; assigning copies values in.")


for _name in (
    "embedding",
    "hidden_weight",
    "hidden_bias",
    "second_weight",
    "second_bias",
    "projection_weight",
    "projection_bias",
    "output_weight",
    "output_bias",
    "direct_weight",
    "hashed_weight",
):
    setattr(Network, _name, _parameter(_name))
