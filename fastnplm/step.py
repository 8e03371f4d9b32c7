"""One training step: gather, hidden layer, output layer, backward, updates; buffers reused."""

import numpy as np

from . import loss as losses
from . import optimizer as optimizers
from . import threads as thread_count
from .errors import SettingsError


def step_settings(batch_size, precision, buffer_mib, dropout, input_dropout):
    """Refuse settings that no step can be made with; raises SettingsError."""
    for name, share in (("dropout", dropout), ("input_dropout", input_dropout)):
        if not 0 <= share < 1:
            raise SettingsError(f"{name} is {share}; expected a share in [0, 1)")
    if precision not in ("float32", "bf16"):
        raise SettingsError(f"precision is {precision!r}; expected float32 or bf16")
    if isinstance(batch_size, bool) or int(batch_size) != batch_size or batch_size < 1:
        raise SettingsError(f"batch_size is {batch_size!r}; expected at least 1 example")
    if not buffer_mib >= 0:
        raise SettingsError(f"buffer_mib is {buffer_mib!r}; expected at least 0")


class Step:
    """A training step for batches of at most ``batch_size`` examples.

    Parameters
    ----------
    network : Network, updated in place by each call; its ``loss`` says which loss it trains
    optimizer : Optimizer or its name
    kernels : name of a kernel module
    threads : None means the processors this process may use
    precision : "float32" or "bf16" (products of the output layer; master weights float32)
    buffer_mib : room for the B x V scores; beyond it they are computed twice
    dropout : share of the hidden units dropped; input_dropout : of the embeddings' elements
    generator : numpy Generator of the noise words and the dropout masks
    """

    def __init__(
        self,
        network,
        optimizer,
        batch_size,
        kernels="auto",
        threads=None,
        precision="float32",
        buffer_mib=256,
        dropout=0.0,
        input_dropout=0.0,
        generator=None,
    ):
        step_settings(batch_size, precision, buffer_mib, dropout, input_dropout)
        self.network = network
        self.optimizer = optimizers.resolve(optimizer)
        self.generator = generator if generator is not None else np.random.default_rng(0)
        self.kernels = network.kernels(kernels)
        self.threads = thread_count.resolve(threads)
        self.state = optimizers.State(self.optimizer, network.trainable)
        self._masks = {"input": _Mask(input_dropout), "hidden": _Mask(dropout)}
        self._layer = network.loss.layer(
            network.vocabulary, network.features, batch_size, self.kernels, self.threads,
            precision, buffer_mib,
        )  # fmt: skip
        self._decays = self._lazy_decays()
        self._allocate(batch_size)

    def _lazy_decays(self):
        if not self.optimizer.weight_decay:
            return {}
        rows = len(self.network.vocabulary)
        decays = {"embedding": optimizers.LazyDecay(rows)}
        if not isinstance(self.network.loss, losses.Softmax):
            decays["output"] = optimizers.LazyDecay(rows)
        return decays

    def _allocate(self, batch_size):
        network = self.network
        dtype, width = network.dtype, network.context * network.dim
        self._hidden = np.empty((batch_size, network.hidden), dtype)
        self._grad_hidden = np.empty((batch_size, network.hidden), dtype)
        self._losses = np.empty(batch_size)
        self._weights = np.empty(batch_size, dtype)
        self._grad_weight = np.empty_like(network.hidden_weight)
        self._grad_bias = np.empty_like(network.hidden_bias)
        # Unless inputs are dropped or connected to the scores directly, they are never formed:
        # the kernel projects the words themselves.
        self._forms_inputs = network.direct or self._masks["input"].share > 0
        if self._forms_inputs:
            self._inputs = np.empty((batch_size, width), dtype)
            self._grad_inputs = np.empty((batch_size, width), dtype)
            self._scratch = np.empty(0, np.uint8)
        else:
            self._scratch = losses.floating_scratch(
                self.kernels.words_scratch(
                    batch_size, network.context, network.dim, network.hidden, threads=self.threads
                )
            )
        if network.direct or self._masks["hidden"].share > 0:
            self._features = np.empty((batch_size, network.features), dtype)
            self._grad_features = np.empty((batch_size, network.features), dtype)
        else:
            self._features, self._grad_features = self._hidden, self._grad_hidden

    def __call__(self, contexts, targets, weights=None, factor=1.0):
        """Train on one batch; returns its mean loss in nats (float).

        contexts : int32 (B, N), targets : int32 (B,); weights : (B,) of at least 0, or None for
        equal ones: the step follows the weighted mean, and an example of weight 0 is left out;
        factor : the schedule's factor on the learning rate. A batch of no weight changes nothing.
        """
        if weights is not None:
            weights = np.asarray(weights, dtype=np.float64)
            counted = weights != 0
            contexts, targets = contexts[counted], targets[counted]
            weights = weights[counted]
        batch = len(targets)
        if batch == 0:
            return 0.0
        share = self._weights[:batch]
        share[:] = 1 / batch if weights is None else weights / weights.sum()
        contexts = np.ascontiguousarray(contexts)
        self.state.updates += 1
        hyper = self.optimizer.hyper(factor, self.state.updates)
        self._layer.draw(self.generator, targets)
        visited = self._refresh(contexts)
        self._forward(contexts, batch)
        self._output_step(targets, share, hyper, batch)
        self._backward(contexts, hyper, batch)
        for name, rows in visited.items():
            self._decays[name].step(rows, hyper[1])
        return float(self._losses[:batch] @ share)

    def _refresh(self, contexts):
        visited = {}
        if "embedding" in self._decays:
            visited["embedding"] = self._decays["embedding"].refresh(
                contexts, self.network.embedding
            )
        if "output" in self._decays:
            rows = np.concatenate([np.ravel(ids) for ids in self._layer.touched])
            visited["output"] = self._decays["output"].refresh(rows, self.network.output)
        return visited

    def _forward(self, contexts, batch):
        network, kernels, threads = self.network, self.kernels, self.threads
        hidden = self._hidden[:batch]
        weight, bias = network.hidden_weight, network.hidden_bias
        if self._forms_inputs:
            inputs = self._inputs[:batch]
            rows = inputs.reshape(-1, network.dim)
            kernels.gather_rows(contexts.reshape(-1), network.embedding, rows, threads=threads)
            self._masks["input"].draw(self.generator, inputs.shape)
            self._masks["input"].apply(kernels, inputs, threads)
            kernels.layer_forward(inputs, weight, bias, hidden, threads=threads)
        else:
            kernels.words_forward(
                contexts, network.embedding, weight, bias, self._scratch, hidden, threads=threads
            )
        if self._features is not self._hidden:
            features = self._features[:batch]
            dropped = hidden.copy()
            self._masks["hidden"].draw(self.generator, hidden.shape)
            self._masks["hidden"].apply(kernels, dropped, threads)
            features[:, : network.hidden] = dropped
            if network.direct:
                features[:, network.hidden :] = self._inputs[:batch]

    def _output_step(self, targets, share, hyper, batch):
        network, slots = self.network, self.state.slots
        self._layer.step(
            self._features[:batch], targets, share, self.optimizer.rule, hyper,
            self._losses[:batch], self._grad_features[:batch],
            (network.output, network.output_bias, slots["output"], slots["output_bias"]),
        )  # fmt: skip

    def _backward(self, contexts, hyper, batch):
        network, kernels, threads = self.network, self.kernels, self.threads
        rule, slots = self.optimizer.rule, self.state.slots
        grad_hidden = self._grad_hidden[:batch]
        if self._grad_features is not self._grad_hidden:
            grad_hidden[:] = self._grad_features[:batch, : network.hidden]
            self._masks["hidden"].apply(kernels, grad_hidden, threads)
        if self._forms_inputs:
            grad_inputs = self._grad_inputs[:batch]
            kernels.layer_backward(
                self._inputs[:batch], self._hidden[:batch], network.hidden_weight, grad_hidden,
                self._grad_weight, self._grad_bias, grad_inputs, threads=threads,
            )  # fmt: skip
            if network.direct:
                grad_inputs += self._grad_features[:batch, network.hidden :]
            self._masks["input"].apply(kernels, grad_inputs, threads)
            kernels.scatter_update(
                contexts.reshape(-1), grad_inputs.reshape(-1, network.dim), rule, hyper,
                network.embedding, slots["embedding"], threads=threads,
            )  # fmt: skip
        else:
            kernels.words_backward(
                contexts, self._hidden[:batch], network.hidden_weight, rule, hyper, self._scratch,
                grad_hidden, self._grad_weight, self._grad_bias, network.embedding,
                slots["embedding"], threads=threads,
            )  # fmt: skip
        kernels.dense_update(
            self._grad_weight, rule, hyper, network.hidden_weight, slots["hidden_weight"],
            threads=threads,
        )  # fmt: skip
        undecayed = hyper.copy()
        undecayed[1] = 0
        kernels.dense_update(
            self._grad_bias, rule, undecayed, network.hidden_bias, slots["hidden_bias"],
            threads=threads,
        )  # fmt: skip

    def arrays(self):
        """The optimiser's arrays by name, live: what a checkpoint keeps beside the parameters."""
        named = {f"slots.{name}": value for name, value in self.state.slots.items() if value.size}
        return named | {f"decay.{name}": decay.seen for name, decay in self._decays.items()}

    def decay_totals(self):
        """The lazy decays' sums, for a checkpoint."""
        return {name: decay.total for name, decay in self._decays.items()}

    def restore_decay_totals(self, totals):
        """Put back what ``decay_totals`` gave."""
        for name, decay in self._decays.items():
            decay.total = totals[name]

    def finish(self):
        """Bring every row up to date with its weight decay; call before parameters are read."""
        for name, decay in self._decays.items():
            decay.finish(getattr(self.network, name))


class _Mask:
    """Inverted dropout of one array: each element kept with probability 1 - share.

    The share is rounded to a multiple of 1/256, so that one random byte decides an element.
    """

    def __init__(self, share):
        self.share = share
        self._limit = min(round(share * 256), 255)
        self._scale = 256 / (256 - self._limit)
        self._mask = None

    def draw(self, generator, shape):
        if self._limit:
            bits = np.frombuffer(generator.bytes(int(np.prod(shape))), dtype=np.uint8)
            self._mask = (bits >= self._limit).view(np.uint8).reshape(shape)

    def apply(self, kernels, values, threads):
        if self._limit:
            kernels.dropout(self._mask, self._scale, values, threads=threads)
