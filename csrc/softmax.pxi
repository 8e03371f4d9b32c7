# The output layer of the exact softmax.

def softmax_cross_entropy(targets, weights, bias, losses, logits, threads=1):
    """Loss, and scores turned into their gradient: see ``reference.softmax_cross_entropy``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef softmax_cross_entropy_t call
    cdef Py_buffer *view = arrays.take("logits", logits, FLOAT, 2, -1, -1, -1, True)
    call.logits = <float *> view.buf
    call.batch = view.shape[0]
    call.vocabulary = view.shape[1]
    view = arrays.take("targets", targets, INT32, 1, call.batch)
    ids_below(k, "targets", view, call.vocabulary)
    call.targets = <const int32_t *> view.buf
    call.weights = <const float *> arrays.take("weights", weights, FLOAT, 1, call.batch).buf
    call.bias = <const float *> arrays.take("bias", bias, FLOAT, 1, call.vocabulary).buf
    call.losses = <double *> arrays.take(
        "losses", losses, DOUBLE, 1, call.batch, -1, -1, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    with nogil:
        k.softmax_cross_entropy(&call)


cdef precision_t precision_of(value) except *:
    if value == "float32":
        return PRECISION_FLOAT32
    if value == "bf16":
        return PRECISION_BFLOAT16
    contract.precision(value, np.float32)


def softmax_step_scratch(batch, hidden, vocabulary, precision="float32", keep=True, threads=1):
    """Bytes of scratch for ``softmax_step``: the form that keeps the scores, or the smallest."""
    cdef softmax_step_scratch_t call
    call.batch = size_of("batch", batch)
    call.hidden_size = size_of("hidden", hidden)
    call.vocabulary = size_of("vocabulary", vocabulary)
    holdable(call.batch, max(call.hidden_size, call.vocabulary))
    call.precision = precision_of(precision)
    call.keep = bool(keep)
    call.threads = checked_threads(threads)
    return chosen().softmax_step_scratch(&call) + 64


def softmax_step(
    hidden,
    targets,
    weights,
    rule,
    hyper,
    precision,
    scratch,
    losses,
    grad_hidden,
    output_weight,
    output_bias,
    weight_slots,
    bias_slots,
    threads=1,
):
    """One step of the output layer: see ``reference.softmax_step``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef softmax_step_t call
    cdef softmax_step_scratch_t size
    cdef int states
    call.precision = precision_of(precision)
    call.rule = <rule_t> rule_code(rule, hyper, arrays, &call.hyper, &states)
    cdef Py_buffer *view = arrays.take(
        "output_weight", output_weight, FLOAT, 2, -1, -1, -1, True)
    call.output_weight = <float *> view.buf
    call.vocabulary = view.shape[0]
    call.hidden_size = view.shape[1]
    view = arrays.take("hidden", hidden, FLOAT, 2, -1, call.hidden_size)
    call.hidden = <const float *> view.buf
    call.batch = view.shape[0]
    view = arrays.take("targets", targets, INT32, 1, call.batch)
    ids_below(k, "targets", view, call.vocabulary)
    call.targets = <const int32_t *> view.buf
    call.weights = <const float *> arrays.take("weights", weights, FLOAT, 1, call.batch).buf
    call.losses = <double *> arrays.take(
        "losses", losses, DOUBLE, 1, call.batch, -1, -1, True).buf
    call.grad_hidden = <float *> arrays.take(
        "grad_hidden", grad_hidden, FLOAT, 2, call.batch, call.hidden_size, -1, True).buf
    call.output_bias = <float *> arrays.take(
        "output_bias", output_bias, FLOAT, 1, call.vocabulary, -1, -1, True).buf
    call.weight_slots = <float *> arrays.take(
        "weight_slots", weight_slots, FLOAT, 3,
        states, call.vocabulary, call.hidden_size, True).buf
    call.bias_slots = <float *> arrays.take(
        "bias_slots", bias_slots, FLOAT, 2, states, call.vocabulary, -1, True).buf
    call.threads = checked_threads(threads)
    size = softmax_step_scratch_t(
        call.batch, call.hidden_size, call.vocabulary, call.precision, 0, call.threads)
    cdef size_t length
    cdef uint8_t *memory = scratch_of(
        arrays, scratch, k.softmax_step_scratch(&size) + 64, "softmax_step_scratch", &length)
    cdef size_t skipped = -<uintptr_t> memory & 63
    call.scratch = memory + skipped
    call.scratch_bytes = length - skipped
    arrays.apart()
    cdef int result
    with nogil:
        result = k.softmax_step(&call)
    whole(result)


def softmax_forward(
    hidden, targets, output_weight, output_bias, log_normalizer, target_score, threads=1
):
    """Log-normaliser and target score of each example: see ``reference.softmax_forward``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef softmax_forward_t call
    cdef softmax_forward_scratch_t size
    cdef Py_buffer *view = arrays.take("output_weight", output_weight, FLOAT, 2)
    call.output_weight = <const float *> view.buf
    call.vocabulary = view.shape[0]
    call.hidden_size = view.shape[1]
    view = arrays.take("hidden", hidden, FLOAT, 2, -1, call.hidden_size)
    call.hidden = <const float *> view.buf
    call.batch = view.shape[0]
    view = arrays.take("targets", targets, INT32, 1, call.batch)
    ids_below(k, "targets", view, call.vocabulary)
    call.targets = <const int32_t *> view.buf
    call.output_bias = <const float *> arrays.take(
        "output_bias", output_bias, FLOAT, 1, call.vocabulary).buf
    call.log_normalizer = <double *> arrays.take(
        "log_normalizer", log_normalizer, DOUBLE, 1, call.batch, -1, -1, True).buf
    call.target_score = <double *> arrays.take(
        "target_score", target_score, DOUBLE, 1, call.batch, -1, -1, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    size = softmax_forward_scratch_t(
        call.batch, call.hidden_size, call.vocabulary, call.threads)
    cdef Workspace workspace = Workspace(k.softmax_forward_scratch(&size))
    call.scratch = workspace.aligned
    cdef int result
    with nogil:
        result = k.softmax_forward(&call)
    whole(result)


def softmax_top_k(hidden, output_weight, output_bias, ids, scores, threads=1):
    """The k best scores of each example: see ``reference.softmax_top_k``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef softmax_top_k_t call
    cdef softmax_top_k_scratch_t size
    cdef Py_buffer *view = arrays.take("output_weight", output_weight, FLOAT, 2)
    call.output_weight = <const float *> view.buf
    call.vocabulary = view.shape[0]
    call.hidden_size = view.shape[1]
    view = arrays.take("hidden", hidden, FLOAT, 2, -1, call.hidden_size)
    call.hidden = <const float *> view.buf
    call.batch = view.shape[0]
    call.output_bias = <const float *> arrays.take(
        "output_bias", output_bias, FLOAT, 1, call.vocabulary).buf
    view = arrays.take("ids", ids, INT32, 2, call.batch, -1, -1, True)
    call.ids = <int32_t *> view.buf
    call.k = view.shape[1]
    call.scores = <float *> arrays.take(
        "scores", scores, FLOAT, 2, call.batch, call.k, -1, True).buf
    if not 1 <= call.k <= call.vocabulary:
        contract.top(call.k, call.vocabulary)
    call.threads = checked_threads(threads)
    arrays.apart()
    size = softmax_top_k_scratch_t(
        call.batch, call.hidden_size, call.vocabulary, call.k, call.threads)
    cdef Workspace workspace = Workspace(k.softmax_top_k_scratch(&size))
    call.scratch = workspace.aligned
    cdef int result
    with nogil:
        result = k.softmax_top_k(&call)
    whole(result)
