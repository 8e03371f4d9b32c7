"""The contenders of a whole training step with a sampled loss, apart from PyTorch's."""

import numpy as np

from . import contenders, workloads


class Noise:
    """Draws the noise of a batch from an alias table, all contenders alike (same bits, same ids).

    The formula is that of ``fastnplm.kernels.reference.draw_noise``, written for speed.
    """

    def __init__(self, workload):
        from fastnplm import noise

        words = workloads.Words(workload.vocabulary)
        self._threshold, self._alias = noise.alias_table(noise.noise_distribution(words))
        self._generator = np.random.default_rng(0)
        self._workload = workload
        self.offsets = None
        if workload.loss == "nce":
            from fastnplm.loss import NCE

            self.offsets = NCE(workload.negatives).log_expected(words).astype(np.float32)

    def words(self, targets):
        """int32 (B, 1 + K): each target and its noise."""
        w = self._workload
        blocks = -(-len(targets) // w.shared)
        bits = self._generator.integers(0, 2**64, size=blocks * w.negatives, dtype=np.uint64)
        half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
        size = np.uint64(w.vocabulary)
        point = (bits >> half) * size + (((bits & mask) * size) >> half)
        column = (point >> half).astype(np.int64)
        drawn = np.where((point & mask) < self._threshold[column], column, self._alias[column])
        words = np.empty((len(targets), 1 + w.negatives), np.int32)
        words[:, 0] = targets
        words[:, 1:] = drawn.reshape(blocks, -1)[np.arange(len(targets)) // w.shared]
        return words


class NumpySampled(contenders.PlainNumpy):
    """Negative sampling or NCE at NumPy's best: out=, batched products, sort and reduceat."""

    def __init__(self, workload, threads):
        super().__init__(workload, threads)
        w = workload
        width = w.context * w.dim
        self._noise = Noise(w)
        self._inputs = np.empty((w.batch, width), np.float32)
        self._hidden = np.empty((w.batch, w.hidden), np.float32)
        self._slope = np.empty_like(self._hidden)
        self._grad_hidden = np.empty((w.batch, 1, w.hidden), np.float32)
        self._grad_weight = np.empty((w.hidden, width), np.float32)
        self._grad_inputs = np.empty_like(self._inputs)
        self._rows = np.empty((w.batch, 1 + w.negatives, w.hidden), np.float32)
        self._scores = np.empty((w.batch, 1 + w.negatives, 1), np.float32)

    def step(self, contexts, targets, rate):
        p, rows, hidden = self.parameters, self._rows, self._hidden
        words = self._noise.words(targets)
        contenders.hidden_layer(p, contexts, self._inputs, hidden)
        np.take(p["output_weight"], words, axis=0, out=rows, mode="clip")
        np.matmul(rows, hidden[:, :, None], out=self._scores)
        scores = self._scores[:, :, 0]
        scores += p["output_bias"][words]
        if self._noise.offsets is not None:
            scores -= self._noise.offsets[words]
        scores[:, 0] *= -1
        loss = np.logaddexp(0, scores).sum() / len(targets)
        grad = 1 / (1 + np.exp(-scores))
        grad[:, 0] *= -1
        grad *= np.float32(rate / len(targets))
        np.matmul(grad[:, None, :], rows, out=self._grad_hidden)
        np.multiply(grad[:, :, None], hidden[:, None, :], out=rows)
        flat = words.reshape(-1)
        contenders.subtract_rows(flat, rows.reshape(len(flat), -1), p["output_weight"])
        contenders.subtract_rows(flat, grad.reshape(-1), p["output_bias"])
        contenders.hidden_backward(
            p, contexts, self._inputs, hidden, self._slope, self._grad_hidden[:, 0],
            self._grad_weight, self._grad_inputs,
        )  # fmt: skip
        return float(loss)


class PlainSampled(NumpySampled):
    """The same step as a tutorial writes it: fresh arrays, ``np.add.at``."""

    def step(self, contexts, targets, rate):
        p = self.parameters
        batch = len(targets)
        words = self._noise.words(targets)
        inputs = p["embedding"][contexts].reshape(batch, -1)
        hidden = np.tanh(inputs @ p["hidden_weight"].T + p["hidden_bias"])
        rows = p["output_weight"][words]
        scores = np.einsum("bkh,bh->bk", rows, hidden) + p["output_bias"][words]
        if self._noise.offsets is not None:
            scores = scores - self._noise.offsets[words]
        label = np.zeros_like(scores)
        label[:, 0] = 1
        loss = np.logaddexp(0, np.where(label == 1, -scores, scores)).sum() / batch
        grad = (1 / (1 + np.exp(-scores)) - label) / np.float32(batch)
        grad_hidden = np.einsum("bk,bkh->bh", grad, rows) * (1 - hidden**2)
        grad_inputs = grad_hidden @ p["hidden_weight"]
        rate = np.float32(rate)
        np.add.at(p["output_weight"], words, -rate * grad[:, :, None] * hidden[:, None, :])
        np.add.at(p["output_bias"], words, -rate * grad)
        p["hidden_weight"] -= rate * (grad_hidden.T @ inputs)
        p["hidden_bias"] -= rate * grad_hidden.sum(axis=0)
        grad_rows = grad_inputs.reshape(-1, self.workload.dim)
        np.add.at(p["embedding"], contexts.reshape(-1), -rate * grad_rows)
        return float(loss)


CONTENDERS = {
    "numpy plain": PlainSampled,
    "numpy tuned": NumpySampled,
    "reference": contenders.Reference,
    "numba": contenders.Numba,
    "native": contenders.Ours,
    "native bf16": contenders.Bf16,
}
