"""The contenders of a whole training step with the exact softmax, apart from PyTorch's.

A contender is made from a workload and a number of threads, holds its own copy of the parameters,
and its ``step(contexts, targets, rate)`` is gather, tanh layer, output layer, loss, backward and
the SGD update of every parameter (the embedding's by touched rows); it returns the mean loss.
``parameters`` names its arrays, for the check against float64.
"""

import numpy as np

from . import workloads


class UnavailableError(Exception):
    """A contender that cannot run here; the message says why."""


class PlainNumpy:
    """The step as a tutorial writes it: fresh arrays, ``np.add.at``."""

    def __init__(self, workload, threads):
        network = workloads.network(workload)
        self.parameters = {name: value.copy() for name, value in network.parameters.items()}
        self.workload = workload

    def step(self, contexts, targets, rate):
        p = self.parameters
        batch = len(targets)
        rows = np.arange(batch)
        inputs = p["embedding"][contexts].reshape(batch, -1)
        hidden = np.tanh(inputs @ p["hidden_weight"].T + p["hidden_bias"])
        scores = hidden @ p["output_weight"].T + p["output_bias"]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probability = scores / scores.sum(axis=1, keepdims=True)
        loss = -np.log(probability[rows, targets]).mean()
        probability[rows, targets] -= 1
        grad_scores = probability / np.float32(batch)
        grad_hidden = grad_scores @ p["output_weight"]
        grad_hidden = grad_hidden * (1 - hidden**2)
        grad_inputs = grad_hidden @ p["hidden_weight"]
        rate = np.float32(rate)
        p["output_weight"] -= rate * (grad_scores.T @ hidden)
        p["output_bias"] -= rate * grad_scores.sum(axis=0)
        p["hidden_weight"] -= rate * (grad_hidden.T @ inputs)
        p["hidden_bias"] -= rate * grad_hidden.sum(axis=0)
        grad_rows = grad_inputs.reshape(-1, self.workload.dim)
        np.add.at(p["embedding"], contexts.reshape(-1), -rate * grad_rows)
        return float(loss)


class TunedNumpy(PlainNumpy):
    """The step at NumPy's best: no new arrays, scales folded into small factors, reduceat.

    The scores are never normalised: exp(score - max) stays, and what it lacks (a factor for each
    example) goes into the (B, H) operands of the products instead; so does the learning rate.
    """

    def __init__(self, workload, threads):
        super().__init__(workload, threads)
        w = workload
        width = w.context * w.dim
        self._inputs = np.empty((w.batch, width), np.float32)
        self._hidden = np.empty((w.batch, w.hidden), np.float32)
        self._scaled = np.empty_like(self._hidden)
        self._grad_hidden = np.empty_like(self._hidden)
        self._slope = np.empty_like(self._hidden)
        self._scores = np.empty((w.batch, w.vocabulary), np.float32)
        self._grad_output = np.empty((w.vocabulary, w.hidden), np.float32)
        self._grad_bias = np.empty(w.vocabulary, np.float32)
        self._grad_weight = np.empty((w.hidden, width), np.float32)
        self._grad_inputs = np.empty_like(self._inputs)
        self._rows = np.arange(w.batch)

    def step(self, contexts, targets, rate):
        p, scores, hidden, scaled = self.parameters, self._scores, self._hidden, self._scaled
        hidden_layer(p, contexts, self._inputs, hidden)
        np.matmul(hidden, p["output_weight"].T, out=scores)
        scores += p["output_bias"]
        highest = scores.max(axis=1)
        target_score = scores[self._rows, targets] - highest
        scores -= highest[:, None]
        np.exp(scores, out=scores)
        total = scores.sum(axis=1)
        loss = (np.log(total) - target_score).mean()
        scores[self._rows, targets] -= total  # so that scores / total = p - onehot
        factor = np.float32(rate / len(targets)) / total
        np.matmul(scores, p["output_weight"], out=self._grad_hidden)
        self._grad_hidden *= factor[:, None]
        np.multiply(hidden, factor[:, None], out=scaled)
        np.matmul(scores.T, scaled, out=self._grad_output)
        np.matmul(factor, scores, out=self._grad_bias)
        p["output_weight"] -= self._grad_output
        p["output_bias"] -= self._grad_bias
        hidden_backward(
            p, contexts, self._inputs, hidden, self._slope, self._grad_hidden, self._grad_weight,
            self._grad_inputs,
        )  # fmt: skip
        return float(loss)


def hidden_layer(parameters, contexts, inputs, hidden):
    """hidden = tanh(weight @ concat(embedding[contexts]) + bias), into ``inputs``, ``hidden``."""
    dim = parameters["embedding"].shape[1]
    rows = inputs.reshape(-1, dim)
    np.take(parameters["embedding"], contexts.reshape(-1), axis=0, out=rows, mode="clip")
    np.matmul(inputs, parameters["hidden_weight"].T, out=hidden)
    hidden += parameters["hidden_bias"]
    np.tanh(hidden, out=hidden)


def hidden_backward(
    parameters, contexts, inputs, hidden, slope, grad_hidden, grad_weight, grad_inputs
):
    """Back through ``hidden_layer``; ``grad_hidden`` comes with the learning rate in it."""
    np.multiply(hidden, hidden, out=slope)
    np.subtract(1, slope, out=slope)
    grad_hidden *= slope
    np.matmul(grad_hidden, parameters["hidden_weight"], out=grad_inputs)
    np.matmul(grad_hidden.T, inputs, out=grad_weight)
    parameters["hidden_weight"] -= grad_weight
    parameters["hidden_bias"] -= grad_hidden.sum(axis=0)
    subtract_rows(
        contexts.reshape(-1), grad_inputs.reshape(-1, parameters["embedding"].shape[1]),
        parameters["embedding"],
    )  # fmt: skip


def subtract_rows(ids, rows, table):
    """``table[ids] -= rows``, duplicates summed: sorted, then added run by run."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    table[ordered[starts]] -= np.add.reduceat(rows[order], starts, axis=0)


class Roof:
    """The three bare NumPy products of the output layer and nothing else: not a training step."""

    parameters = None  # nothing is learned, so nothing is checked

    def __init__(self, workload, threads):
        generator = np.random.default_rng(0)
        w = workload
        self._hidden = generator.random((w.batch, w.hidden), np.float32)
        self._weight = generator.random((w.vocabulary, w.hidden), np.float32)
        self._scores = np.empty((w.batch, w.vocabulary), np.float32)
        self._grad_hidden = np.empty_like(self._hidden)
        self._grad_weight = np.empty_like(self._weight)

    def step(self, contexts, targets, rate):
        np.matmul(self._hidden, self._weight.T, out=self._scores)
        np.matmul(self._scores, self._weight, out=self._grad_hidden)
        np.matmul(self._scores.T, self._hidden, out=self._grad_weight)
        return 0.0


class Ours:
    """fastnplm's own step, as ``fastnplm train`` runs it (``fastnplm.step.Step``)."""

    kernels, precision, buffer = "native", "float32", None

    def __init__(self, workload, threads):
        from fastnplm.errors import Error
        from fastnplm.optimizer import resolve
        from fastnplm.step import Step

        self._network = workloads.network(workload)

        self.parameters = self._network.parameters
        self._rate = resolve(workload.optimizer).lr
        try:
            self._step = Step(
                self._network, resolve(workload.optimizer), workload.batch, kernels=self.kernels,
                threads=threads, precision=self.precision,
                buffer_mib=workload.buffer if self.buffer is None else self.buffer,
                generator=np.random.default_rng(0),
            )  # fmt: skip
        except (Error, ImportError) as error:
            raise UnavailableError(str(error)) from None

    def step(self, contexts, targets, rate):
        return self._step(contexts, targets, factor=rate / self._rate)


class Bf16(Ours):
    """The same with the products of the output layer in bfloat16."""

    precision = "bf16"


class DefaultBuffer(Ours):
    """The same with the default room for the scores (256 MiB): beyond it, computed twice."""

    buffer = 256


class NoBuffer(Ours):
    """The same without room for the scores: always computed twice."""

    buffer = 0


class Numba(Ours):
    """fastnplm's step on the Numba kernels."""

    kernels = "numba"


class Reference(Ours):
    """fastnplm's step on the NumPy kernels that specify all others."""

    kernels = "reference"


CONTENDERS = {
    "roof": Roof,
    "numpy plain": PlainNumpy,
    "numpy tuned": TunedNumpy,
    "reference": Reference,
    "numba": Numba,
    "native": Ours,
    "native default buffer": DefaultBuffer,
    "native no buffer": NoBuffer,
    "native bf16": Bf16,
}
