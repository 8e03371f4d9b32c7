/* Work on one row of a table: the inner loops that gather, scatter and negative sampling share. */
#ifndef FASTNPLM_ROWS_H
#define FASTNPLM_ROWS_H

#include "target.h"

/* Bytes of a line of the caches. */
enum { LINE = 64 };

/* How many rows ahead of its use a row is asked for: memory takes about as long as this many. */
#define ROWS_AHEAD 8

INLINE void row_prefetch(const float *row, ptrdiff_t dim) {
    const char *from = (const char *)row;
    for (ptrdiff_t at = 0; at < dim * 4; at += 64)
        __builtin_prefetch(from + at, 0, 2);
    __builtin_prefetch(from + dim * 4 - 4);
}

/* A row's last vector may overlap the one before it, so that nothing is read or written beyond the
 * row and no element is handled alone. Where the row is changed it is read before that one is. */

INLINE void row_copy(float *to, const float *from, ptrdiff_t dim) {
    if (dim < LANES) {
        for (ptrdiff_t at = 0; at < dim; at++)
            to[at] = from[at];
        return;
    }
    for (ptrdiff_t at = 0; at < dim - LANES; at += LANES)
        vector_store(to + at, vector_load(from + at));
    vector_store(to + dim - LANES, vector_load(from + dim - LANES));
}

/* to += scale * from */
INLINE void row_add_scaled(float *to, float scale, const float *from, ptrdiff_t dim) {
    if (dim < LANES) {
        for (ptrdiff_t at = 0; at < dim; at++)
            to[at] += scale * from[at];
        return;
    }
    vector last = vector_load(to + dim - LANES) + scale * vector_load(from + dim - LANES);
    for (ptrdiff_t at = 0; at < dim - LANES; at += LANES)
        vector_store(to + at, vector_load(to + at) + scale * vector_load(from + at));
    vector_store(to + dim - LANES, last);
}

INLINE void row_add(float *to, const float *from, ptrdiff_t dim) {
    if (dim < LANES) {
        for (ptrdiff_t at = 0; at < dim; at++)
            to[at] += from[at];
        return;
    }
    vector last = vector_load(to + dim - LANES) + vector_load(from + dim - LANES);
    for (ptrdiff_t at = 0; at < dim - LANES; at += LANES)
        vector_store(to + at, vector_load(to + at) + vector_load(from + at));
    vector_store(to + dim - LANES, last);
}

/* Which lanes of a row's last vector the whole vectors before it have not covered: all bits. */
INLINE int_vector row_last_lanes(ptrdiff_t dim) {
    int_vector mask = {0};
    ptrdiff_t left = dim % LANES;
    for (int lane = 0; lane < LANES; lane++)
        mask[lane] = lane >= LANES - left ? -1 : 0;
    return mask;
}

/* The sum of a * b, in a fixed order; last is row_last_lanes(dim). Four sums side by side hide the
 * time an addition takes. */
INLINE float row_dot(const float *a, const float *b, ptrdiff_t dim, int_vector last) {
    if (dim < LANES) {
        float sum = 0.0f;
        for (ptrdiff_t at = 0; at < dim; at++)
            sum += a[at] * b[at];
        return sum;
    }
    vector sums[4] = {{0}};
    ptrdiff_t at = 0;
    for (; at + 4 * LANES <= dim; at += 4 * LANES)
        UNROLL for (int s = 0; s < 4; s++)
            sums[s] += vector_load(a + at + s * LANES) * vector_load(b + at + s * LANES);
    for (; at + LANES <= dim; at += LANES)
        sums[0] += vector_load(a + at) * vector_load(b + at);
    if (at < dim) {
        const vector x = vector_load(a + dim - LANES), y = vector_load(b + dim - LANES);
        sums[1] += vector_from_bits(vector_bits(x) & last) * vector_from_bits(vector_bits(y) & last);
    }
    return vector_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* How many vectors of columns row_combine sums together. */
enum { TOGETHER = 4 };

/* out (+)= scales[0] * rows[0] + scales[1] * rows[1] + ... (count rows): the sums of a few vectors
 * stay in registers while the rows go by. Unless ahead is NULL, lines of memory that will be needed
 * are asked for as it goes: for each row and each TOGETHER vectors one, from ahead[row] on. */
INLINE void row_combine_ahead(float *out, int begin, ptrdiff_t count, const float *scales,
                              const float *const *rows, ptrdiff_t dim, const char *const *ahead) {
    if (dim < LANES) {
        for (ptrdiff_t at = 0; at < dim; at++) {
            float sum = begin ? 0.0f : out[at];
            for (ptrdiff_t r = 0; r < count; r++)
                sum += scales[r] * rows[r][at];
            out[at] = sum;
        }
        return;
    }
    vector last = begin ? (vector){0} : vector_load(out + dim - LANES);
    ptrdiff_t at = 0, line = 0;
    for (; at + TOGETHER * LANES <= dim; at += TOGETHER * LANES, line += LINE) {
        vector sums[TOGETHER];
        UNROLL for (int s = 0; s < TOGETHER; s++)
            sums[s] = begin ? (vector){0} : vector_load(out + at + s * LANES);
        for (ptrdiff_t r = 0; r < count; r++) {
            if (ahead)
                __builtin_prefetch(ahead[r] + line);
            UNROLL for (int s = 0; s < TOGETHER; s++)
                sums[s] += scales[r] * vector_load(rows[r] + at + s * LANES);
        }
        UNROLL for (int s = 0; s < TOGETHER; s++)
            vector_store(out + at + s * LANES, sums[s]);
    }
    for (; at + LANES <= dim; at += LANES) {
        vector sum = begin ? (vector){0} : vector_load(out + at);
        for (ptrdiff_t r = 0; r < count; r++)
            sum += scales[r] * vector_load(rows[r] + at);
        vector_store(out + at, sum);
    }
    if (at < dim) {
        for (ptrdiff_t r = 0; r < count; r++)
            last += scales[r] * vector_load(rows[r] + dim - LANES);
        vector_store(out + dim - LANES, last);
    }
}

INLINE void row_combine(float *out, int begin, ptrdiff_t count, const float *scales,
                        const float *const *rows, ptrdiff_t dim) {
    row_combine_ahead(out, begin, count, scales, rows, dim, NULL);
}

#endif
