# The output layer of the sampled losses.

def draw_noise(bits, threshold, alias, noise, threads=1):
    """Draw words from an alias table: see ``reference.draw_noise``.

    An alias table of more than 65,536 words is checked only where it is drawn from, so that the
    cost of a batch does not grow with the vocabulary; ``noise`` has then been written.
    """
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef draw_noise_t call
    cdef Py_buffer *view = arrays.take("bits", bits, UINT64, 1)
    call.bits = <const uint64_t *> view.buf
    call.count = view.shape[0]
    view = arrays.take("threshold", threshold, UINT32, 1)
    call.threshold = <const uint32_t *> view.buf
    call.vocabulary = view.shape[0]
    view = arrays.take("alias", alias, INT32, 1, call.vocabulary)
    call.alias = <const int32_t *> view.buf
    if call.vocabulary <= 65536:
        ids_below(k, "alias", view, call.vocabulary)
    call.noise = <int32_t *> arrays.take(
        "noise", noise, INT32, 1, call.count, -1, -1, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    if call.count and not call.vocabulary:
        contract.empty_table()
    cdef Py_ssize_t bad
    with nogil:
        bad = k.draw_noise(&call)
    if bad >= 0:
        raise IdError(
            f"alias holds {call.alias[bad]} at position {bad}; ids are in [0, {call.vocabulary})"
        )


def negative_step_scratch(batch, block, negatives, hidden, threads=1):
    """Bytes of scratch that ``negative_step`` needs."""
    cdef negative_scratch_t call
    call.batch = size_of("batch", batch)
    call.block = size_of("block", block)
    call.negatives = size_of("negatives", negatives)
    call.hidden = size_of("hidden", hidden)
    holdable(call.batch, max(call.negatives, 1), max(call.hidden, 1))
    call.threads = checked_threads(threads)
    return chosen().negative_scratch(&call)


def negative_step(
    hidden,
    targets,
    weights,
    noise,
    block,
    skip_target,
    offsets,
    rule,
    hyper,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    threads=1,
):
    """One step of a sampled output layer: see ``reference.negative_step``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef negative_step_t call
    cdef negative_scratch_t size
    cdef int states
    call.rule = <rule_t> rule_code(rule, hyper, arrays, &call.hyper, &states)
    cdef Py_buffer *view = arrays.take(
        "output_weight", output_weight, FLOAT, 2, -1, -1, -1, True)
    call.output_weight = <float *> view.buf
    call.vocabulary = view.shape[0]
    call.hidden = view.shape[1]
    view = arrays.take("hidden", hidden, FLOAT, 2, -1, call.hidden)
    call.values = <const float *> view.buf
    call.batch = view.shape[0]
    view = arrays.take("targets", targets, INT32, 1, call.batch)
    ids_below(k, "targets", view, call.vocabulary)
    call.targets = <const int32_t *> view.buf
    call.weights = <const float *> arrays.take("weights", weights, FLOAT, 1, call.batch).buf
    cdef Py_ssize_t examples = block
    if examples < 1:
        contract.block(block)
    call.block = examples if examples < call.batch else max(call.batch, 1)
    view = arrays.take(
        "noise", noise, INT32, 2, (call.batch + call.block - 1) // call.block, -1)
    ids_below(k, "noise", view, call.vocabulary)
    call.noise = <const int32_t *> view.buf
    call.negatives = view.shape[1]
    call.skip_target = bool(skip_target)
    call.offsets = NULL
    if len(offsets):
        call.offsets = <const float *> arrays.take(
            "offsets", offsets, FLOAT, 1, call.vocabulary).buf
    else:
        arrays.take("offsets", offsets, FLOAT, 1, 0)
    call.losses = <double *> arrays.take(
        "losses", losses, DOUBLE, 1, call.batch, -1, -1, True).buf
    call.grad_hidden = <float *> arrays.take(
        "grad_hidden", grad_hidden, FLOAT, 2, call.batch, call.hidden, -1, True).buf
    call.output_bias = <float *> arrays.take(
        "output_bias", output_bias, FLOAT, 1, call.vocabulary, -1, -1, True).buf
    call.weight_slots = <float *> arrays.take(
        "weight_slots", weight_slots, FLOAT, 3, states, call.vocabulary, call.hidden, True).buf
    call.bias_slots = <float *> arrays.take(
        "bias_slots", bias_slots, FLOAT, 2, states, call.vocabulary, -1, True).buf
    call.threads = checked_threads(threads)
    size = negative_scratch_t(
        call.batch, call.block, call.negatives, call.hidden, call.threads)
    call.scratch = scratch_of(
        arrays, scratch, k.negative_scratch(&size), "negative_step_scratch")
    arrays.apart()
    cdef int result
    with nogil:
        result = k.negative_step(&call)
    whole(result)
