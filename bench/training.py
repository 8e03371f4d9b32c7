"""Training that is timed step by step, for curves of perplexity against seconds."""

import itertools
import time

import numpy as np

from fastnplm.batches import Epoch
from fastnplm.step import Step

CONTEXT, DIM, HIDDEN = 4, 100, 200


def network(corpus, loss, seed):
    """A network of the size that all curves are drawn for, about to be trained with ``loss``."""
    import fastnplm

    model = fastnplm.NPLM(corpus.vocabulary, context=CONTEXT, dim=DIM, hidden=HIDDEN, seed=seed)
    model.adopt(loss)
    return model


def train(model, corpus, batch, lr, seed=0, precision="float32", factor=None):
    """Train ``model`` for ever with Adam on one thread: yields after each batch.

    What is yielded is (seconds, tokens, epochs): those of the processor, spent in making batches
    and in steps, so that other work on the machine changes little and whatever the caller does in
    between is not counted; tokens trained on; epochs ended. factor : from updates (int) to the
    factor on the learning rate, or None.
    """
    import fastnplm

    optimizer = fastnplm.optimizer.resolve("adam", lr=lr)
    step = Step(model, optimizer, batch, threads=1, precision=precision, buffer_mib=1024)
    contexts, targets = np.empty((batch, model.context), np.int32), np.empty(batch, np.int32)
    ends = corpus.vocabulary.start_id, corpus.vocabulary.end_id
    seconds, tokens = 0.0, 0
    for epoch in itertools.count():
        for positions in Epoch(len(corpus.tokens), batch, seed, epoch):
            began = time.process_time()
            size = len(positions)
            step.kernels.form_contexts(
                corpus.tokens, positions, *ends, contexts[:size], targets[:size]
            )
            rate = 1.0 if factor is None else factor(step.state.updates + 1)
            step(contexts[:size], targets[:size], factor=rate)
            seconds += time.process_time() - began
            tokens += size
            yield seconds, tokens, epoch + (tokens == (epoch + 1) * len(corpus.tokens))
