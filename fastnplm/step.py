"""One training step: gather, hidden layer, output layer, backward, updates; buffers reused."""

import itertools

import numpy as np

from . import arrays, hashing
from . import loss as losses
from . import optimizer as optimizers
from . import threads as thread_count
from .layers import Mask, stack
from .step_settings import step_settings


class Step:
    """A training step for batches of at most ``batch_size`` examples.

    Parameters
    ----------
    network : Network, updated in place by each call; its ``loss`` says which loss it trains
    optimizer : Optimizer or its name
    kernels : name of a kernel module
    threads : None means the processors this process may use
    precision : "float32" or "bf16" (products of the output layer, if exact, and of the first
        hidden layer from words; sums, weights and updates are float32)
    buffer_mib : room for the B x V scores; beyond it they are computed twice
    dropout : share of the hidden units dropped; input_dropout : of the embeddings' elements;
    word_dropout : of the context words, replaced by the unknown word
    output_dropout : of the units of the projection below a tied output layer; refused without one
    clip : largest norm of an example's gradient below the output layer, or None
    label_smoothing : share of the targets' probability spread over all words
    hashed_lr, hashed_dropout : rate of the hashed n-grams' own descent and share of them left out
        (``hashing.py``); None: 0.15 and 0.6
    generator : numpy Generator of the noise words, the n-grams left out, the dropout masks and the
        smoothed targets
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
        word_dropout=0.0,
        clip=None,
        label_smoothing=0.0,
        output_dropout=0.0,
        hashed_lr=None,
        hashed_dropout=None,
        generator=None,
    ):
        step_settings(
            batch_size, precision, buffer_mib, dropout, input_dropout, word_dropout, clip,
            label_smoothing, output_dropout, hashed_lr, hashed_dropout,
        )  # fmt: skip
        hashing.require_n_grams(network.hashed, hashed_lr, hashed_dropout)
        self.network = network
        self.optimizer = optimizers.resolve(optimizer)
        self.generator = generator if generator is not None else np.random.default_rng(0)
        self.kernels = network.kernels(kernels)
        self.threads = thread_count.resolve(threads)
        self.state = optimizers.State(self.optimizer, network.optimized)
        self._input_mask = Mask(input_dropout)
        self._word_limit = min(round(word_dropout * 256), 255)
        self._clip = clip
        self._smoothing = losses.LabelSmoothing(label_smoothing, network.vocabulary)
        self._precision = precision
        self._output = network.loss.layer(
            network.vocabulary, network.features, batch_size, self.kernels, self.threads,
            precision, buffer_mib,
        )  # fmt: skip
        self._layers = stack(
            network, batch_size, self.kernels, self.threads, dropout, output_dropout
        )
        self._decays = self._lazy_decays()
        self._allocate(batch_size)
        self._hashed = None
        if network.hashed:
            lr, share = hashing.settings(hashed_lr, hashed_dropout).values()
            self._hashed = hashing.HashedStep(
                network.hashed_weight, batch_size, self.kernels, self.threads, lr, share
            )

    def _lazy_decays(self):
        """Tables of which a step visits only some rows, and so decays only these at once."""
        network, rows = self.network, len(self.network.vocabulary)
        if not self.optimizer.shrinks:
            return {}
        made = optimizers.LazyShrinkage if self.optimizer.l1 else optimizers.LazyDecay
        found = {"hashed_weight": made(network.hashed)} if network.hashed else {}
        if isinstance(network.loss, losses.Softmax):
            return found if network.tied else found | {"embedding": made(rows)}
        names = ("embedding",) if network.tied else ("embedding", "output")
        return found | {name: made(rows) for name in names}

    def _allocate(self, batch_size):
        network = self.network
        dtype, width = network.dtype, network.context * network.dim
        self._losses = np.empty(batch_size)
        self._weights = np.empty(batch_size, dtype)
        # Unless inputs are dropped, connected to the scores or share the embedding with them,
        # they are never formed: the kernel projects the words themselves.
        self._forms_inputs = network.direct or network.tied or self._input_mask.limit > 0
        if self._forms_inputs:
            self._inputs = arrays.zeros((batch_size, width), dtype)
            self._grad_inputs = arrays.zeros((batch_size, width), dtype)
        else:
            size = self.kernels.words_scratch(
                batch_size, network.context, network.dim, network.hidden, precision=self._precision,
                threads=self.threads,
            )  # fmt: skip
            self._scratch = arrays.zeros(size, np.uint8)
        # Direct connections join the vectors to the hidden units: for the scores, or if tied for
        # the projection (which reads the vectors alone where there are no hidden units).
        self._joined = self._grad_joined = self._joins = None
        if network.scores_inputs or (network.direct and network.hidden):
            self._joined, self._grad_joined = (
                arrays.zeros((batch_size, network.hidden + width), dtype) for _ in range(2)
            )
        if network.scores_inputs:
            self._features, self._grad_features = self._joined, self._grad_joined
        else:
            self._features = self._layers[-1].outputs
            self._grad_features = self._layers[-1].grad
            self._joins = self._layers[-1] if self._joined is not None else None
            if network.hashed:  # what the layer gave is still wanted, on the way back
                self._features = arrays.zeros(self._features.shape, dtype)
        if network.tied:
            self._tied_grad = arrays.zeros((1, *network.embedding.shape), dtype)
            self._bias_grad = np.zeros((1, len(network.output_bias)), dtype)

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
        contexts = self._drop_words(np.ascontiguousarray(contexts))
        self.state.updates += 1
        hyper = self.optimizer.hyper(factor, self.state.updates)
        undecayed = hyper.copy()
        undecayed[1] = 0
        targets = self._smoothing.draw(self.generator, targets)
        self._output.draw(self.generator, targets)
        visited = self._refresh(contexts)
        self._forward(contexts, batch)
        touched = self._output_step(targets, share, hyper, batch)
        if self._clip is not None:
            self._clip_rows(self._grad_features[:batch], share)
        if self._hashed is not None:
            grad = self._grad_features[:batch, : self._hashed.width]
            self._hashed.backward(grad, share, factor, hyper[1])
        self._backward(contexts, hyper, batch)
        if self.network.tied:
            self._tied_update(contexts, touched, hyper, batch)
        for layer in self._layers:
            layer.update(self.optimizer.rule, hyper, undecayed, self.state.slots)
        amount = self.optimizer.lr * factor * (self.optimizer.l1 or self.optimizer.weight_decay)
        for name, rows in visited.items():
            self._decays[name].step(rows, amount)
        if self.optimizer.l1:
            self._shrink(amount)
        return float(self._losses[:batch] @ share)

    def _drop_words(self, contexts):
        """Some context words replaced by the unknown word (Iyyer et al. 2015)."""
        if not self._word_limit:
            return contexts
        vocabulary = self.network.vocabulary
        instead = vocabulary.start_id if vocabulary.unk_id is None else vocabulary.unk_id
        bits = np.frombuffer(self.generator.bytes(contexts.size), np.uint8)
        dropped = (bits < self._word_limit).reshape(contexts.shape)
        return np.where(dropped, np.int32(instead), contexts)

    def _refresh(self, contexts):
        """Bring the rows this step reads up to date with their weight decay."""
        wanted = {"embedding": [contexts]}
        if self._hashed is not None:
            wanted["hashed_weight"] = [self._hashed.find(contexts, self.generator)]
        if self._output.touched is not None:
            wanted.setdefault("embedding" if self.network.tied else "output", []).extend(
                self._output.touched
            )
        visited = {}
        for name, decay in self._decays.items():
            rows = np.concatenate([np.ravel(ids) for ids in wanted[name]])
            visited[name] = decay.refresh(rows, self.network.trainable[name])
        return visited

    def _shrink(self, amount):
        """L1's part of the step for the weights that every step reads whole."""
        for name, value in self.network.trainable.items():
            if name not in self._decays and not name.endswith("bias"):
                for low in range(0, len(value), 1024):  # bounds the temporary arrays
                    optimizers.shrink(value[low : low + 1024], amount)

    def _forward(self, contexts, batch):
        network, kernels, threads = self.network, self.kernels, self.threads
        layers = self._layers
        if self._forms_inputs:
            inputs = self._inputs[:batch]
            rows = inputs.reshape(-1, network.dim)
            kernels.gather_rows(contexts.reshape(-1), network.embedding, rows, threads=threads)
            self._input_mask.draw(self.generator, inputs.shape)
            self._input_mask.apply(kernels, inputs, threads)
            if layers:
                layers[0].forward(inputs, self.generator)
        else:
            kernels.words_forward(
                contexts, network.embedding, layers[0].weight, layers[0].bias, self._scratch,
                layers[0].activation[:batch], self._precision, threads=threads,
            )  # fmt: skip
            layers[0].finish_forward(None, batch, self.generator)
        for below, layer in itertools.pairwise(layers):
            joined = layer is self._joins
            layer.forward(
                self._join(below, batch) if joined else below.outputs[:batch], self.generator
            )
        if network.scores_inputs:
            self._join(layers[-1] if layers else None, batch)
        if self._hashed is not None:
            features = self._features[:batch]
            if not network.scores_inputs:
                features[:] = layers[-1].outputs[:batch]
            self._hashed.forward(features[:, : self._hashed.width])

    def _join(self, below, batch):
        """The outputs of the layer ``below`` (or None) and the vectors, side by side."""
        joined, hidden = self._joined[:batch], self.network.hidden
        if below is not None:
            joined[:, :hidden] = below.outputs[:batch]
        joined[:, hidden:] = self._inputs[:batch]
        return joined

    def _output_step(self, targets, share, hyper, batch):
        """Scores, losses and the output layer's step; of a tied model only its gradient.

        Returns the distinct output rows that a sampled step of a tied model touched, or None.
        """
        network, slots = self.network, self.state.slots
        rule = self.optimizer.rule
        if network.tied:
            # The gradient itself is wanted, to be summed with that of the embedding's other
            # role: momentum with beta1 = 0 at rate 0 leaves it in its slot, the weights as is.
            self._output.step(
                self._features[:batch], targets, share, "momentum", np.zeros_like(hyper),
                self._losses[:batch], self._grad_features[:batch],
                (network.output, network.output_bias, self._tied_grad, self._bias_grad),
            )  # fmt: skip
            undecayed = hyper.copy()
            undecayed[1] = 0
            touched = self._output.touched
            if touched is not None:
                touched = np.unique(np.concatenate([np.ravel(ids) for ids in touched]))
            self._bias_update(touched, undecayed)
            return touched
        self._output.step(
            self._features[:batch], targets, share, rule, hyper,
            self._losses[:batch], self._grad_features[:batch],
            (network.output, network.output_bias, slots["output"], slots["output_bias"]),
        )  # fmt: skip
        return None

    def _bias_update(self, rows, hyper):
        """One step of the output bias, on ``rows`` or all, from what the tied output left."""
        rule, bias, slots = self.optimizer.rule, self.network.output_bias, self.state.slots
        grad, slots = self._bias_grad[0], slots["output_bias"]
        if rows is None:
            self.kernels.dense_update(grad, rule, hyper, bias, slots, threads=self.threads)
            return
        self.kernels.scatter_update(
            rows, grad[rows, None], rule, hyper, bias[:, None], slots[:, :, None],
            threads=self.threads,
        )  # fmt: skip

    def _clip_rows(self, grads, share):
        """Limit each example's gradient to the norm ``clip`` (before its weight in the mean).

        The output layer needs no clipping: an example's gradient of it is at most sqrt(2) times
        the norm of its features, which tanh bounds (or, above a linear projection, the weights
        do). So the fused step stays one step.
        """
        norms = np.sqrt(np.einsum("bf,bf->b", grads, grads, dtype=np.float64))
        limit = self._clip * share
        over = norms > limit
        if over.any():
            grads[over] *= (limit[over] / norms[over]).astype(grads.dtype)[:, None]

    def _backward(self, contexts, hyper, batch):
        network, kernels, threads = self.network, self.kernels, self.threads
        rule, slots = self.optimizer.rule, self.state.slots
        layers = self._layers
        if network.scores_inputs and layers:
            layers[-1].grad[:batch] = self._grad_joined[:batch, : network.hidden]
        for layer, below in zip(layers[:0:-1], layers[-2::-1], strict=True):
            if layer is self._joins:
                layer.backward(self._joined[:batch], self._grad_joined[:batch])
                below.grad[:batch] = self._grad_joined[:batch, : network.hidden]
            else:
                layer.backward(below.outputs[:batch], below.grad[:batch])
        if not self._forms_inputs:
            first = layers[0]
            kernels.words_backward(
                contexts, first.activation[:batch], first.weight, rule, hyper, self._scratch,
                first.start_backward(batch), first.grad_weight, first.grad_bias,
                network.embedding, slots["embedding"], self._precision, threads=threads,
            )  # fmt: skip
            return
        grad_inputs = self._grad_inputs[:batch]
        if layers:
            layers[0].backward(self._inputs[:batch], grad_inputs)
        else:
            grad_inputs[:] = 0
        if self._joined is not None:
            grad_inputs += self._grad_joined[:batch, network.hidden :]
        self._input_mask.apply(kernels, grad_inputs, threads)
        if not network.tied:
            kernels.scatter_update(
                contexts.reshape(-1), grad_inputs.reshape(-1, network.dim), rule, hyper,
                network.embedding, slots["embedding"], threads=threads,
            )  # fmt: skip

    def _tied_update(self, contexts, rows, hyper, batch):
        """One step of the shared table on the sum of its gradients as input and as output.

        rows : those that the output touched, None for all
        """
        network, kernels, threads = self.network, self.kernels, self.threads
        rule, slots = self.optimizer.rule, self.state.slots["embedding"]
        grads = self._grad_inputs[:batch].reshape(-1, network.dim)
        ids = contexts.reshape(-1)
        summed = self._tied_grad[0]
        if rows is None:
            adding = np.array([-1.0, 0, 0, 0, 0, 1])  # plain descent at rate -1 adds
            kernels.scatter_update(ids, grads, "sgd", adding, summed, self._tied_grad[:0],
                                   threads=threads)  # fmt: skip
            kernels.dense_update(summed, rule, hyper, network.embedding, slots, threads=threads)
            return
        kernels.scatter_update(
            np.concatenate([ids, rows]), np.concatenate([grads, summed[rows]]),
            rule, hyper, network.embedding, slots, threads=threads,
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
            decay.finish(self.network.trainable[name])
