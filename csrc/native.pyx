# cython: language_level=3
"""The compiled kernels: the functions of ``reference``, where they are documented, in C.

Each function checks its arrays, releases the GIL and makes one C call. Nothing is written before
every check has passed. Arrays are read through the buffer protocol, so no NumPy header is needed,
and are float32: float64 is for the reference kernels. The instruction set is chosen when the
kernels are first used: the best this processor has, or the one that FASTNPLM_ISA names.
"""

import os

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdlib cimport free, malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

import numpy as np

from ..errors import ArrayError, IdError, SettingsError
from . import contract

NAME = "native"


cdef extern from "rules.h" nogil:
    enum rule_t "rule":
        pass


cdef extern from "kernels.h" nogil:
    struct form_contexts_t "form_contexts":
        const void *tokens
        const int64_t *positions
        ptrdiff_t batch, context
        int32_t narrow, start_id, end_id
        int32_t *contexts
        int32_t *targets

    struct find_bad_id_t "find_bad_id":
        const int32_t *ids
        ptrdiff_t count, limit

    struct gather_rows_t "gather_rows":
        const int32_t *ids
        const float *table
        float *rows
        ptrdiff_t count, dim
        int threads

    struct scatter_update_t "scatter_update":
        const int32_t *ids
        const float *grads
        rule_t rule
        const double *hyper
        float *table
        float *slots
        ptrdiff_t count, dim, vocabulary
        int threads

    struct dense_update_t "dense_update":
        const float *grad
        rule_t rule
        const double *hyper
        float *parameter
        float *slots
        ptrdiff_t count
        int threads

    struct bias_tanh_t "bias_tanh":
        const float *bias
        float *values
        ptrdiff_t batch, hidden
        int threads

    struct tanh_backward_t "tanh_backward":
        const float *values
        float *grad_bias
        float *grad_hidden
        ptrdiff_t batch, hidden
        int threads

    struct dropout_t "dropout":
        const uint8_t *mask
        float scale
        float *values
        ptrdiff_t count
        int threads

    struct layer_forward_t "layer_forward":
        const float *inputs
        const float *weight
        const float *bias
        float *values
        ptrdiff_t batch, width, hidden
        int threads

    struct layer_backward_t "layer_backward":
        const float *inputs
        const float *values
        const float *weight
        float *grad_hidden
        float *grad_weight
        float *grad_bias
        float *grad_inputs
        ptrdiff_t batch, width, hidden
        int threads

    enum precision_t "precision":
        PRECISION_FLOAT32, PRECISION_BFLOAT16

    struct words_scratch_t "words_scratch":
        ptrdiff_t batch, context, dim, hidden
        precision_t precision
        int threads

    struct words_forward_t "words_forward":
        const int32_t *contexts
        const float *embedding
        const float *weight
        const float *bias
        uint8_t *scratch
        float *values
        ptrdiff_t batch, context, dim, hidden
        precision_t precision
        int threads

    struct words_backward_t "words_backward":
        const int32_t *contexts
        const float *values
        const float *weight
        rule_t rule
        const double *hyper
        uint8_t *scratch
        float *grad_hidden
        float *grad_weight
        float *grad_bias
        float *embedding
        float *slots
        ptrdiff_t batch, context, dim, hidden, vocabulary
        precision_t precision
        int threads

    struct softmax_cross_entropy_t "softmax_cross_entropy":
        const int32_t *targets
        const float *weights
        const float *bias
        double *losses
        float *logits
        ptrdiff_t batch, vocabulary
        int threads

    struct softmax_step_t "softmax_step":
        ptrdiff_t batch, hidden_size, vocabulary
        const float *hidden
        const int32_t *targets
        const float *weights
        rule_t rule
        const double *hyper
        double *losses
        float *grad_hidden
        float *output_weight
        float *output_bias
        float *weight_slots
        float *bias_slots
        void *scratch
        size_t scratch_bytes
        precision_t precision
        int threads

    struct softmax_step_scratch_t "softmax_step_scratch":
        ptrdiff_t batch, hidden_size, vocabulary
        precision_t precision
        int keep, threads

    struct softmax_forward_t "softmax_forward":
        ptrdiff_t batch, hidden_size, vocabulary
        const float *hidden
        const int32_t *targets
        const float *output_weight
        const float *output_bias
        double *log_normalizer
        double *target_score
        void *scratch
        int threads

    struct softmax_forward_scratch_t "softmax_forward_scratch":
        ptrdiff_t batch, hidden_size, vocabulary
        int threads

    struct softmax_top_k_t "softmax_top_k":
        ptrdiff_t batch, hidden_size, vocabulary, k
        const float *hidden
        const float *output_weight
        const float *output_bias
        int32_t *ids
        float *scores
        void *scratch
        int threads

    struct softmax_top_k_scratch_t "softmax_top_k_scratch":
        ptrdiff_t batch, hidden_size, vocabulary, k
        int threads

    struct draw_noise_t "draw_noise":
        const uint64_t *bits
        const uint32_t *threshold
        const int32_t *alias
        int32_t *noise
        ptrdiff_t count, vocabulary
        int threads

    struct negative_scratch_t "negative_scratch":
        ptrdiff_t batch, block, negatives, hidden
        int threads

    struct negative_step_t "negative_step":
        const float *values
        const int32_t *targets
        const float *weights
        const int32_t *noise
        const float *offsets
        rule_t rule
        const double *hyper
        uint8_t *scratch
        double *losses
        float *grad_hidden
        float *output_weight
        float *output_bias
        float *weight_slots
        float *bias_slots
        ptrdiff_t batch, block, negatives, hidden, vocabulary
        int skip_target, threads

    struct kernels:
        ptrdiff_t (*find_bad_id)(const find_bad_id_t *) noexcept nogil
        int (*form_contexts)(const form_contexts_t *) noexcept nogil
        int (*gather_rows)(const gather_rows_t *) noexcept nogil
        int (*scatter_update)(const scatter_update_t *) noexcept nogil
        int (*dense_update)(const dense_update_t *) noexcept nogil
        int (*bias_tanh)(const bias_tanh_t *) noexcept nogil
        int (*tanh_backward)(const tanh_backward_t *) noexcept nogil
        int (*dropout)(const dropout_t *) noexcept nogil
        int (*layer_forward)(const layer_forward_t *) noexcept nogil
        int (*layer_backward)(const layer_backward_t *) noexcept nogil
        size_t (*words_scratch)(const words_scratch_t *) noexcept nogil
        int (*words_forward)(const words_forward_t *) noexcept nogil
        int (*words_backward)(const words_backward_t *) noexcept nogil
        int (*softmax_cross_entropy)(const softmax_cross_entropy_t *) noexcept nogil
        size_t (*softmax_step_scratch)(const softmax_step_scratch_t *) noexcept nogil
        int (*softmax_step)(const softmax_step_t *) noexcept nogil
        size_t (*softmax_forward_scratch)(const softmax_forward_scratch_t *) noexcept nogil
        int (*softmax_forward)(const softmax_forward_t *) noexcept nogil
        size_t (*softmax_top_k_scratch)(const softmax_top_k_scratch_t *) noexcept nogil
        int (*softmax_top_k)(const softmax_top_k_t *) noexcept nogil
        ptrdiff_t (*draw_noise)(const draw_noise_t *) noexcept nogil
        size_t (*negative_scratch)(const negative_scratch_t *) noexcept nogil
        int (*negative_step)(const negative_step_t *) noexcept nogil


cdef extern from "dispatch.h" nogil:
    struct level:
        const char *name
        const kernels *kernels
        int supported, bf16
    int dispatch_levels(level *levels)


cdef extern from "threads.h" nogil:
    int threads_available()


# --- which instruction set --------------------------------------------------------------------

cdef level active_level
active_level.kernels = NULL


cdef const kernels *chosen() except NULL:
    """The kernels in use; the first call chooses them."""
    if active_level.kernels is NULL:
        _force(os.environ.get("FASTNPLM_ISA") or None)
    return active_level.kernels


def instruction_sets():
    """The names of the instruction sets built in that this processor has, the best last."""
    cdef level levels[8]
    cdef int count = dispatch_levels(levels)
    return [levels[at].name.decode() for at in range(count) if levels[at].supported]


def _force(name=None):
    """Use one instruction set from now on, for the whole process: for tests. None: the best."""
    global active_level
    cdef level levels[8]
    cdef int count = dispatch_levels(levels)
    cdef int at
    for at in range(count - 1, -1, -1):
        if levels[at].supported and (name is None or levels[at].name.decode() == name):
            active_level = levels[at]
            return
    having = ", ".join(instruction_sets()) or "none"
    raise SettingsError(
        f"FASTNPLM_ISA is {name!r}; this processor and build have {having}"
        if name is not None else
        "this processor has none of the instruction sets that the native kernels were built for;"
        " use kernels=\"numba\" or kernels=\"reference\""
    )


def describe():
    """What these kernels run on: a dict of strings."""
    chosen()
    return {
        "kernels": NAME,
        "instruction_set": active_level.name.decode(),
        "available": ", ".join(instruction_sets()),
        "threading": "OpenMP" if threads_available() else "one thread (built without OpenMP)",
        "bf16": "in hardware" if active_level.bf16 else "emulated",
    }


# --- checks -----------------------------------------------------------------------------------

cdef enum Kind:
    FLOAT, DOUBLE, INT32, INT64, UINT8, UINT32, UINT64, TOKEN

_DTYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint32, np.uint64,
           (np.uint16, np.int32))
_RULES = {"sgd": 0, "momentum": 1, "adagrad": 2, "rmsprop": 3, "adam": 4}
cdef enum:
    MOST = 20


cdef bint is_kind(const Py_buffer *view, Kind kind) noexcept:
    """Whether the elements are of this kind, in this machine's byte order."""
    cdef const char *format = view.format
    if format == NULL or format[0] == 0 or format[1] != 0:
        return False
    cdef char code = format[0]
    cdef Py_ssize_t size = view.itemsize
    if kind == FLOAT:
        return code == c"f"
    if kind == DOUBLE:
        return code == c"d"
    if kind == INT32 or kind == TOKEN:
        if kind == TOKEN and code == c"H":
            return True
        return size == 4 and (code == c"i" or code == c"l")
    if kind == INT64:
        return size == 8 and (code == c"l" or code == c"q")
    if kind == UINT8:
        return code == c"B"
    if kind == UINT32:
        return size == 4 and (code == c"I" or code == c"L")
    return size == 8 and (code == c"L" or code == c"Q")


cdef bint has_sane_sizes(const Py_buffer *view) noexcept:
    """Whether no size of an empty array is beyond what memory could hold of a fuller one.

    Nothing else bounds these sizes, and products of them must not overflow.
    """
    cdef int at
    for at in range(view.ndim):
        if view.shape[at] > 0x7FFFFFFF:
            return False
    return True


cdef class Arrays:
    """The arrays of one call: held, checked, and let go when the call ends."""

    cdef Py_buffer views[MOST]
    cdef const char *names[MOST]
    cdef bint written[MOST]
    cdef int count

    def __cinit__(self):
        self.count = 0

    def __dealloc__(self):
        for at in range(self.count):
            PyBuffer_Release(&self.views[at])

    cdef Py_buffer *take(
        self, const char *name, object value, Kind kind, int dimensions,
        Py_ssize_t first=-1, Py_ssize_t second=-1, Py_ssize_t third=-1, bint written=False,
    ) except NULL:
        """Hold ``value`` if it is what the kernel takes (-1: any), else say what it is."""
        cdef Py_buffer *view = &self.views[self.count]
        cdef bint held = False
        try:
            PyObject_GetBuffer(value, view, PyBUF_FORMAT | PyBUF_STRIDES)
            held = True
        except (TypeError, ValueError, BufferError):
            pass
        if held:
            self.names[self.count] = name
            self.written[self.count] = written
            self.count += 1
            if (
                (view.ndim == dimensions or dimensions < 0)
                and is_kind(view, kind)
                and (dimensions < 1 or first < 0 or view.shape[0] == first)
                and (dimensions < 2 or second < 0 or view.shape[1] == second)
                and (dimensions < 3 or third < 0 or view.shape[2] == third)
                and PyBuffer_IsContiguous(view, c"C")
                and <uintptr_t> view.buf % <size_t> view.itemsize == 0
                and not (written and view.readonly)
                and (view.len > 0 or has_sane_sizes(view))
            ):
                return view
        if dimensions < 0:
            refuse(name.decode(), value, kind, None, written)
        sizes = (first, second, third)[:dimensions]
        shape = tuple([None if size < 0 else size for size in sizes])
        refuse(name.decode(), value, kind, shape, written)

    cdef Py_buffer *take_shape(
        self, const char *name, object value, Kind kind, tuple shape, bint written=False
    ) except NULL:
        """Hold an array of this shape of any number of dimensions."""
        cdef Py_buffer *view = self.take(name, value, kind, -1, -1, -1, -1, written)
        if shape_of(view) != shape:
            refuse(name.decode(), value, kind, shape, written)
        return view

    cdef int apart(self) except -1:
        """Refuse written arrays that share memory with one another or with an input."""
        cdef int at, other
        cdef const char *begin
        cdef const char *other_begin
        for at in range(self.count):
            if not self.written[at] or self.views[at].len == 0:
                continue
            begin = <const char *> self.views[at].buf
            for other in range(self.count):
                if other == at or (self.written[other] and other < at):
                    continue
                other_begin = <const char *> self.views[other].buf
                if (
                    begin < other_begin + self.views[other].len
                    and other_begin < begin + self.views[at].len
                ):
                    raise ArrayError(
                        f"{self.names[at].decode()} overlaps {self.names[other].decode()};"
                        " pass arrays of their own"
                    )
        return 0


cdef tuple shape_of(const Py_buffer *view):
    """The shape of the memory itself: a subclass may say anything."""
    return tuple([view.shape[at] for at in range(view.ndim)])


cdef int refuse(name, value, Kind kind, shape, bint written) except -1:
    """Raise what the reference kernels raise; they know how to say it."""
    if kind == FLOAT and isinstance(value, np.ndarray) and value.dtype == np.float64:
        raise ArrayError(
            f"{name} has dtype float64; expected float32"
            " (float64 is for kernels=\"reference\" alone)"
        )
    contract.array(name, value, _DTYPES[<int> kind], shape, written)
    raise ArrayError(f"{name} is not an array that the native kernels can read; pass a plain one")


cdef int ids_below(const kernels *k, str name, Py_buffer *view, Py_ssize_t limit) except -1:
    """Refuse ids outside [0, limit): names the first bad value and its position."""
    cdef find_bad_id_t call
    call.ids = <const int32_t *> view.buf
    call.count = view.len // 4
    call.limit = limit
    cdef Py_ssize_t where = k.find_bad_id(&call)
    if where >= 0:
        raise IdError(f"{name} holds {call.ids[where]} at position {where}; ids are in [0, {limit})")
    return 0


cdef int rule_code(name, hyper, Arrays arrays, const double **numbers, int *slots) except -1:
    """The rule's number for C, its six numbers and how many arrays of state it has."""
    code = _RULES.get(name) if isinstance(name, str) else None
    if code is None:
        contract.rule(name, hyper)
        raise SettingsError(f"rule is {name!r}")
    numbers[0] = <const double *> arrays.take("hyper", hyper, DOUBLE, 1, 6).buf
    cdef int number = code
    slots[0] = 0 if number == 0 else 2 if number == 4 else 1
    return number


cdef int checked_threads(threads) except -1:
    cdef Py_ssize_t asked = threads  # TypeError for what is no whole number
    if asked < 1:
        raise SettingsError(f"threads is {threads}; expected at least 1")
    return asked if asked < 4096 else 4096


cdef ptrdiff_t size_of(str name, value) except -1:
    """A size that an array could have."""
    cdef Py_ssize_t size = value  # TypeError for what is no whole number
    if not 0 <= size <= 0x7FFFFFFF:
        raise SettingsError(f"{name} is {value}; expected 0 to 2,147,483,647")
    return size


cdef int holdable(double first, double second, double third=1) except -1:
    """Refuse sizes of which no memory could hold as many elements as their product."""
    if first * second * third > 2.0 ** 44:
        raise SettingsError(f"{first:.0f} x {second:.0f} x {third:.0f} is more than memory holds")
    return 0


cdef uint8_t *scratch_of(
    Arrays arrays, scratch, size_t needed, str by, size_t *length=NULL
) except NULL:
    """The workspace, if it is large enough; its ``length`` on request."""
    cdef Py_buffer *view = arrays.take("scratch", scratch, UINT8, 1, -1, -1, -1, True)
    if <size_t> view.len < needed:
        raise ArrayError(f"scratch has {view.len} bytes; this call needs {needed} (see {by})")
    if length is not NULL:
        length[0] = view.len
    return <uint8_t *> view.buf


cdef class Workspace:
    """Memory for one call of a kernel whose caller brings none."""

    cdef void *memory
    cdef void *aligned

    def __cinit__(self, size_t size):
        self.memory = malloc(size + 64)
        if self.memory is NULL:
            raise MemoryError(f"the native kernels could not get {size} bytes of workspace")
        self.aligned = <void *> ((<uintptr_t> self.memory + 63) & ~<uintptr_t> 63)

    def __dealloc__(self):
        free(self.memory)


cdef int whole(int result) except -1:
    if result != 0:
        raise MemoryError("the native kernels could not get their workspace; use smaller batches")
    return 0


# --- contexts and embedding -------------------------------------------------------------------

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


# --- the hidden layer -------------------------------------------------------------------------

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


def layer_forward(inputs, weight, bias, hidden, threads=1):
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
    call.threads = checked_threads(threads)
    arrays.apart()
    cdef int result
    with nogil:
        result = k.layer_forward(&call)
    whole(result)


def layer_backward(
    inputs, hidden, weight, grad_hidden, grad_weight, grad_bias, grad_inputs, threads=1
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


# --- the output layer: exact softmax ----------------------------------------------------------

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


# --- the output layer: sampled losses ---------------------------------------------------------

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
