"""PyTorch's contenders: the same step, written as its users write it."""

import numpy as np

from . import workloads
from .contenders import UnavailableError

try:
    import torch
except ImportError:  # torch is an extra
    torch = None


class Eager:
    """PyTorch eager: ``nn.Embedding``, two ``nn.Linear``, ``cross_entropy``, ``optim.SGD``.

    The embedding's gradient is sparse, as the documentation advises for large vocabularies.
    """

    sparse = True
    precision = "float32"

    def __init__(self, workload, threads):
        if torch is None:
            raise UnavailableError("torch is not installed")
        torch.set_num_threads(threads)
        network = workloads.network(workload)
        w = workload
        self._embedding = torch.nn.Embedding(w.vocabulary, w.dim, sparse=self.sparse)
        self._hidden = torch.nn.Linear(w.context * w.dim, w.hidden)
        self._output = torch.nn.Linear(w.hidden, w.vocabulary)
        tensors = {
            "embedding": self._embedding.weight,
            "hidden_weight": self._hidden.weight,
            "hidden_bias": self._hidden.bias,
            "output_weight": self._output.weight,
            "output_bias": self._output.bias,
        }
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(network.parameters[name]))
        self.parameters = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
        self._optimizer = torch.optim.SGD(tensors.values(), lr=workloads.LEARNING_RATE)

    def step(self, contexts, targets, rate):
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "autocast"):
            inputs = self._embedding(torch.from_numpy(contexts)).flatten(1)
            hidden = torch.tanh(self._hidden(inputs))
            scores = self._output(hidden)
            loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(targets).long())
        loss.backward()
        self._optimizer.step()
        return loss.item()


class EagerDense(Eager):
    """The same with a dense gradient of the embedding, PyTorch's default."""

    sparse = False


class EagerBf16(Eager):
    """The same under bfloat16 autocast."""

    precision = "autocast"


class EagerSampled(Eager):
    """Negative sampling or NCE with ``sparse=True`` for both tables.

    The noise is drawn by the alias table in NumPy, which costs it little: torch.multinomial is
    slower.
    """

    def __init__(self, workload, threads):
        super().__init__(workload, threads)
        from .sampled import Noise

        w = workload
        self._workload = w
        self._rows = torch.nn.Embedding(w.vocabulary, w.hidden, sparse=True)
        self._biases = torch.nn.Embedding(w.vocabulary, 1, sparse=True)
        with torch.no_grad():
            self._rows.weight.copy_(self._output.weight)
            self._biases.weight.copy_(self._output.bias[:, None])
        del self._output
        self.parameters["output_weight"] = self._rows.weight.detach().numpy()
        self.parameters["output_bias"] = self._biases.weight.detach().numpy()[:, 0]
        tensors = (
            self._embedding.weight, self._hidden.weight, self._hidden.bias, self._rows.weight,
            self._biases.weight,
        )  # fmt: skip
        self._optimizer = torch.optim.SGD(tensors, lr=workloads.LEARNING_RATE)
        self._noise = Noise(w)
        self._sign = torch.ones(w.negatives + 1)
        self._sign[0] = -1

    def step(self, contexts, targets, rate):
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.zero_grad()
        words = torch.from_numpy(self._noise.words(targets))
        inputs = self._embedding(torch.from_numpy(contexts)).flatten(1)
        hidden = torch.tanh(self._hidden(inputs))
        scores = torch.bmm(self._rows(words), hidden.unsqueeze(2)).squeeze(2)
        scores = scores + self._biases(words).squeeze(2)
        if self._noise.offsets is not None:
            scores = scores - torch.from_numpy(np.take(self._noise.offsets, words.numpy()))
        loss = torch.nn.functional.softplus(scores * self._sign).sum() / len(targets)
        loss.backward()
        self._optimizer.step()
        return loss.item()


CONTENDERS = {
    "torch": Eager,
    "torch dense": EagerDense,
    "torch bf16": EagerBf16,
}
SAMPLED = {"torch sparse": EagerSampled}
