# Arrays and numbers of a call, checked before any memory is touched.

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
