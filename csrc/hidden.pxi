# The hidden layer, from its inputs and straight from words.

def bias_tanh(bias, hidden, threads=1):
    """``hidden = tanh(hidden + bias)`` in place: see ``reference.bias_tanh``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef bias_tanh_t call
    cdef Py_buffer *values = arrays.take("hidden", hidden, FLOAT, 2, -1, -1, -1, True)
    call.batch = values.shape[0]
    call.hidden = values.shape[1]
    call.values = <float *> values.buf
    call.bias = <const float *> arrays.take("bias", bias, FLOAT, 1, call.hidden).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    with nogil:
        k.bias_tanh(&call)


def tanh_backward(hidden, grad_bias, grad_hidden, threads=1):
    """``grad_hidden *= 1 - hidden**2`` and its sum: see ``reference.tanh_backward``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef tanh_backward_t call
    cdef Py_buffer *values = arrays.take("hidden", hidden, FLOAT, 2)
    call.batch = values.shape[0]
    call.hidden = values.shape[1]
    call.values = <const float *> values.buf
    call.grad_hidden = <float *> arrays.take(
        "grad_hidden", grad_hidden, FLOAT, 2, call.batch, call.hidden, -1, True).buf
    call.grad_bias = <float *> arrays.take(
        "grad_bias", grad_bias, FLOAT, 1, call.hidden, -1, -1, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    cdef int result
    with nogil:
        result = k.tanh_backward(&call)
    whole(result)


def dropout(mask, scale, values, threads=1):
    """``values *= mask * scale`` in place: see ``reference.dropout``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef dropout_t call
    cdef Py_buffer *changed = arrays.take("values", values, FLOAT, -1, -1, -1, -1, True)
    call.mask = <const uint8_t *> arrays.take_shape("mask", mask, UINT8, shape_of(changed)).buf
    call.values = <float *> changed.buf
    call.count = changed.len // 4
    call.scale = scale
    call.threads = checked_threads(threads)
    arrays.apart()
    with nogil:
        k.dropout(&call)


def layer_forward(inputs, weight, bias, hidden, bint linear=False, threads=1):
    """``hidden = tanh(inputs @ weight.T + bias)``: see ``reference.layer_forward``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef layer_forward_t call
    cdef Py_buffer *view = arrays.take("inputs", inputs, FLOAT, 2)
    call.inputs = <const float *> view.buf
    call.batch = view.shape[0]
    call.width = view.shape[1]
    view = arrays.take("weight", weight, FLOAT, 2, -1, call.width)
    call.weight = <const float *> view.buf
    call.hidden = view.shape[0]
    call.bias = <const float *> arrays.take("bias", bias, FLOAT, 1, call.hidden).buf
    call.values = <float *> arrays.take(
        "hidden", hidden, FLOAT, 2, call.batch, call.hidden, -1, True).buf
    call.linear = linear
    call.threads = checked_threads(threads)
    arrays.apart()
    cdef int result
    with nogil:
        result = k.layer_forward(&call)
    whole(result)


def layer_backward(
    inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs, bint linear=False,
    threads=1,
):
    """The gradients of ``layer_forward``: see ``reference.layer_backward``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef layer_backward_t call
    cdef Py_buffer *view = arrays.take("inputs", inputs, FLOAT, 2)
    call.inputs = <const float *> view.buf
    call.batch = view.shape[0]
    call.width = view.shape[1]
    view = arrays.take("weight", weight, FLOAT, 2, -1, call.width)
    call.weight = <const float *> view.buf
    call.hidden = view.shape[0]
    call.values = <const float *> arrays.take(
        "hidden", hidden, FLOAT, 2, call.batch, call.hidden).buf
    call.grad_hidden = <float *> arrays.take(
        "grad_hidden", grad_hidden, FLOAT, 2, call.batch, call.hidden, -1, True).buf
    call.grad_weight = <float *> arrays.take(
        "grad_weight", grad_weight, FLOAT, 2, call.hidden, call.width, -1, True).buf
    call.grad_bias = <float *> arrays.take(
        "grad_bias", grad_bias, FLOAT, 1, call.hidden, -1, -1, True).buf
    call.grad_inputs = <float *> arrays.take(
        "grad_inputs", grad_inputs, FLOAT, 2, call.batch, call.width, -1, True).buf
    call.linear = linear
    call.threads = checked_threads(threads)
    arrays.apart()
    cdef int result
    with nogil:
        result = k.layer_backward(&call)
    whole(result)


def words_scratch(batch, context, dim, hidden, precision="float32", threads=1):
    """Bytes of scratch that ``words_forward`` and ``words_backward`` need."""
    cdef words_scratch_t call
    call.batch = size_of("batch", batch)
    call.context = size_of("context", context)
    call.dim = size_of("dim", dim)
    call.hidden = size_of("hidden", hidden)
    holdable(call.batch, call.context, max(call.dim, call.hidden))
    holdable(call.context, call.dim, call.hidden)
    call.precision = precision_of(precision)
    call.threads = checked_threads(threads)
    return chosen().words_scratch(&call)


def words_forward(
    contexts, embedding, weight, bias, scratch, hidden, precision="float32", threads=1
):
    """The hidden layer straight from word ids: see ``reference.words_forward``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef words_forward_t call
    cdef words_scratch_t size
    cdef Py_buffer *table = arrays.take("embedding", embedding, FLOAT, 2)
    cdef Py_buffer *view = arrays.take("contexts", contexts, INT32, 2)
    ids_below(k, "contexts", view, table.shape[0])
    call.embedding = <const float *> table.buf
    call.dim = table.shape[1]
    call.contexts = <const int32_t *> view.buf
    call.batch = view.shape[0]
    call.context = view.shape[1]
    view = arrays.take("weight", weight, FLOAT, 2, -1, call.context * call.dim)
    call.weight = <const float *> view.buf
    call.hidden = view.shape[0]
    call.bias = <const float *> arrays.take("bias", bias, FLOAT, 1, call.hidden).buf
    call.values = <float *> arrays.take(
        "hidden", hidden, FLOAT, 2, call.batch, call.hidden, -1, True).buf
    call.precision = precision_of(precision)
    call.threads = checked_threads(threads)
    size = words_scratch_t(
        call.batch, call.context, call.dim, call.hidden, call.precision, call.threads)
    call.scratch = scratch_of(arrays, scratch, k.words_scratch(&size), "words_scratch")
    arrays.apart()
    cdef int result
    with nogil:
        result = k.words_forward(&call)
    whole(result)


def words_backward(
    contexts,
    hidden,
    weight,
    rule,
    hyper,
    scratch,
    grad_hidden,
    grad_weight,
    grad_bias,
    embedding,
    slots,
    precision="float32",
    threads=1,
):
    """Backward through ``words_forward``: see ``reference.words_backward``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef words_backward_t call
    cdef words_scratch_t size
    cdef int states
    call.rule = <rule_t> rule_code(rule, hyper, arrays, &call.hyper, &states)
    cdef Py_buffer *table = arrays.take("embedding", embedding, FLOAT, 2, -1, -1, -1, True)
    call.embedding = <float *> table.buf
    call.vocabulary = table.shape[0]
    call.dim = table.shape[1]
    call.slots = <float *> arrays.take(
        "slots", slots, FLOAT, 3, states, call.vocabulary, call.dim, True).buf
    cdef Py_buffer *view = arrays.take("contexts", contexts, INT32, 2)
    ids_below(k, "contexts", view, call.vocabulary)
    call.contexts = <const int32_t *> view.buf
    call.batch = view.shape[0]
    call.context = view.shape[1]
    view = arrays.take("weight", weight, FLOAT, 2, -1, call.context * call.dim)
    call.weight = <const float *> view.buf
    call.hidden = view.shape[0]
    call.values = <const float *> arrays.take(
        "hidden", hidden, FLOAT, 2, call.batch, call.hidden).buf
    call.grad_hidden = <float *> arrays.take(
        "grad_hidden", grad_hidden, FLOAT, 2, call.batch, call.hidden, -1, True).buf
    call.grad_weight = <float *> arrays.take(
        "grad_weight", grad_weight, FLOAT, 2, call.hidden, call.context * call.dim, -1, True).buf
    call.grad_bias = <float *> arrays.take(
        "grad_bias", grad_bias, FLOAT, 1, call.hidden, -1, -1, True).buf
    call.precision = precision_of(precision)
    call.threads = checked_threads(threads)
    size = words_scratch_t(
        call.batch, call.context, call.dim, call.hidden, call.precision, call.threads)
    call.scratch = scratch_of(arrays, scratch, k.words_scratch(&size), "words_scratch")
    arrays.apart()
    cdef int result
    with nogil:
        result = k.words_backward(&call)
    whole(result)
