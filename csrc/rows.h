/* Work on one row of a table: the inner loops that gather, scatter and negative sampling share. */
#ifndef FASTNPLM_ROWS_H
#define FASTNPLM_ROWS_H

#include "target.h"

/* How many rows ahead of its use a row is asked for: memory takes about as long as this many. */
#define ROWS_AHEAD 8

INLINE void row_prefetch(const float *row, ptrdiff_t dim) {
    const char *from = (const char *)row;
    for (ptrdiff_t at = 0; at < dim * 4; at += 64)
        __builtin_prefetch(from + at);
    __builtin_prefetch(from + dim * 4 - 4);
}

/* The last few elements of a row that are less than a vector: halves, quarters, ... of one, so that
 * nothing is read or written beyond the row. */
INLINE void row_copy(float *to, const float *from, ptrdiff_t dim) {
    ptrdiff_t at = 0;
    for (; at + LANES <= dim; at += LANES)
        vector_store(to + at, vector_load(from + at));
#if LANES > 8
    if (dim - at >= 8) {
        memcpy(to + at, from + at, 32);
        at += 8;
    }
#endif
#if LANES > 4
    if (dim - at >= 4) {
        memcpy(to + at, from + at, 16);
        at += 4;
    }
#endif
    for (; at < dim; at++)
        to[at] = from[at];
}

INLINE void row_add(float *to, const float *from, ptrdiff_t dim) {
    ptrdiff_t at = 0;
    for (; at + LANES <= dim; at += LANES)
        vector_store(to + at, vector_load(to + at) + vector_load(from + at));
    for (; at < dim; at++)
        to[at] += from[at];
}

/* to += scale * from */
INLINE void row_add_scaled(float *to, float scale, const float *from, ptrdiff_t dim) {
    ptrdiff_t at = 0;
    for (; at + LANES <= dim; at += LANES)
        vector_store(to + at, vector_load(to + at) + scale * vector_load(from + at));
    for (; at < dim; at++)
        to[at] += scale * from[at];
}

/* Four sums side by side hide the latency of one addition; their order is fixed. */
INLINE float row_dot(const float *a, const float *b, ptrdiff_t dim) {
    vector sums[4] = {{0}};
    ptrdiff_t at = 0;
    for (; at + 4 * LANES <= dim; at += 4 * LANES)
        for (int s = 0; s < 4; s++)
            sums[s] += vector_load(a + at + s * LANES) * vector_load(b + at + s * LANES);
    for (; at + LANES <= dim; at += LANES)
        sums[0] += vector_load(a + at) * vector_load(b + at);
    float rest = 0.0f;
    for (; at < dim; at++)
        rest += a[at] * b[at];
    return vector_sum((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

#endif
