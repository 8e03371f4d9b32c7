# Contexts, rows of the embedding, and the updates of parameters.

cdef int fill_contexts(
    Arrays arrays, form_contexts_t *call, tokens, positions, start_id, end_id, contexts, targets
) except -1:
    cdef Py_buffer *stream = arrays.take("tokens", tokens, TOKEN, 1)
    cdef Py_buffer *where = arrays.take("positions", positions, INT64, 1)
    cdef Py_ssize_t batch = where.shape[0], at, count = stream.shape[0]
    cdef Py_buffer *words = arrays.take("contexts", contexts, INT32, 2, batch, -1, -1, True)
    cdef Py_buffer *target = arrays.take("targets", targets, INT32, 1, batch, -1, -1, True)
    call.tokens = stream.buf
    call.positions = <const int64_t *> where.buf
    call.batch = batch
    call.context = words.shape[1]
    call.narrow = stream.itemsize == 2
    call.start_id = start_id
    call.end_id = end_id
    call.contexts = <int32_t *> words.buf
    call.targets = <int32_t *> target.buf
    for at in range(batch):
        if call.positions[at] < 0 or call.positions[at] >= count:
            raise IdError(
                f"positions holds {call.positions[at]} at position {at}; expected [0, {count})"
            )
    return 0


def form_contexts(tokens, positions, start_id, end_id, contexts, targets):
    """Write the context and the target of each position: see ``reference.form_contexts``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef form_contexts_t call
    fill_contexts(arrays, &call, tokens, positions, start_id, end_id, contexts, targets)
    arrays.apart()
    with nogil:
        k.form_contexts(&call)


def gather_rows(ids, table, rows, threads=1):
    """``rows[r] = table[ids[r]]``: see ``reference.gather_rows``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef gather_rows_t call
    cdef Py_buffer *whole_table = arrays.take("table", table, FLOAT, 2)
    cdef Py_buffer *named = arrays.take("ids", ids, INT32, 1)
    ids_below(k, "ids", named, whole_table.shape[0])
    call.count = named.shape[0]
    call.dim = whole_table.shape[1]
    call.ids = <const int32_t *> named.buf
    call.table = <const float *> whole_table.buf
    call.rows = <float *> arrays.take(
        "rows", rows, FLOAT, 2, call.count, call.dim, -1, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    with nogil:
        k.gather_rows(&call)


def gather_contexts(
    tokens, positions, start_id, end_id, embedding, contexts, targets, inputs, threads=1
):
    """Form contexts and gather their embeddings: see ``reference.gather_contexts``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef form_contexts_t forming
    cdef gather_rows_t call
    cdef Py_buffer *table = arrays.take("embedding", embedding, FLOAT, 2)
    fill_contexts(arrays, &forming, tokens, positions, start_id, end_id, contexts, targets)
    call.dim = table.shape[1]
    call.count = forming.batch * forming.context
    call.ids = forming.contexts
    call.table = <const float *> table.buf
    call.rows = <float *> arrays.take(
        "inputs", inputs, FLOAT, 2, forming.batch, forming.context * call.dim, -1, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    with nogil:
        k.form_contexts(&forming)
    # contexts and targets are the third and fourth arrays that fill_contexts took
    ids_below(k, "contexts", &arrays.views[3], table.shape[0])
    ids_below(k, "targets", &arrays.views[4], table.shape[0])
    with nogil:
        k.gather_rows(&call)


def scatter_update(ids, grads, rule, hyper, table, slots, threads=1):
    """One optimiser step on the rows named: see ``reference.scatter_update``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef scatter_update_t call
    cdef int states
    call.rule = <rule_t> rule_code(rule, hyper, arrays, &call.hyper, &states)
    cdef Py_buffer *whole_table = arrays.take("table", table, FLOAT, 2, -1, -1, -1, True)
    call.vocabulary = whole_table.shape[0]
    call.dim = whole_table.shape[1]
    cdef Py_buffer *named = arrays.take("ids", ids, INT32, 1)
    ids_below(k, "ids", named, call.vocabulary)
    call.count = named.shape[0]
    call.ids = <const int32_t *> named.buf
    call.table = <float *> whole_table.buf
    call.grads = <const float *> arrays.take("grads", grads, FLOAT, 2, call.count, call.dim).buf
    call.slots = <float *> arrays.take(
        "slots", slots, FLOAT, 3, states, call.vocabulary, call.dim, True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    cdef int result
    with nogil:
        result = k.scatter_update(&call)
    whole(result)


def dense_update(grad, rule, hyper, parameter, slots, threads=1):
    """One optimiser step on a whole parameter: see ``reference.dense_update``."""
    cdef const kernels *k = chosen()
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef dense_update_t call
    cdef int states
    call.rule = <rule_t> rule_code(rule, hyper, arrays, &call.hyper, &states)
    cdef Py_buffer *changed = arrays.take("parameter", parameter, FLOAT, -1, -1, -1, -1, True)
    cdef tuple shape = shape_of(changed)
    call.parameter = <float *> changed.buf
    call.count = changed.len // 4
    call.grad = <const float *> arrays.take_shape("grad", grad, FLOAT, shape).buf
    call.slots = <float *> arrays.take_shape("slots", slots, FLOAT, (states, *shape), True).buf
    call.threads = checked_threads(threads)
    arrays.apart()
    with nogil:
        k.dense_update(&call)
