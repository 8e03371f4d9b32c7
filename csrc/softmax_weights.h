/* A tile's weights as the operands of the two products of pass 1: where they lie for float32,
 * copies for bfloat16. */
#ifndef FASTNPLM_SOFTMAX_WEIGHTS_H
#define FASTNPLM_SOFTMAX_WEIGHTS_H

#include "softmax_tile.h"

struct tile_weights {
    const float *rows;    /* word (rows, WORDS(H)), rows_stride apart: for the scores */
    const float *columns; /* word (WORDS(rows), H), columns_stride apart: for grad_hidden */
    ptrdiff_t rows_stride, columns_stride;
};

/* Strides and sizes of a tile's copies: whole vectors, so that converting needs no last piece. */
static inline ptrdiff_t row_stride(ptrdiff_t hidden_size) {
    return (WORDS(hidden_size) + LANES - 1) / LANES * LANES;
}

static inline ptrdiff_t column_stride(ptrdiff_t hidden_size) {
    return (hidden_size + LANES - 1) / LANES * LANES;
}

static inline ptrdiff_t row_words(ptrdiff_t hidden_size) {
    return TILE_ROWS * row_stride(hidden_size);
}

static inline ptrdiff_t column_words(ptrdiff_t hidden_size) {
    return WORDS(TILE_ROWS) * column_stride(hidden_size);
}

/* The vector of row k on, zero past its end. */
INLINE vector row_vector(const float *row, ptrdiff_t k, ptrdiff_t hidden_size) {
    if (k + LANES <= hidden_size)
        return vector_load(row + k);
    return k < hidden_size ? vector_load_first(row + k, hidden_size - k) : (vector){0};
}

/* The operands of weight (rows, H). row_copy (row_words,) and column_copy (column_words,) are
 * written for bfloat16; columns of pairs only if column_copy is not null. */
static inline struct tile_weights tile_weights(ptrdiff_t rows, ptrdiff_t hidden_size,
                                               const float *weight, float *row_copy,
                                               float *column_copy) {
#if IN_PAIRS
    const ptrdiff_t across = row_stride(hidden_size), down = column_stride(hidden_size);
    const vector nothing = {0};
    for (ptrdiff_t r = 0; r < rows; r += 2) {
        const float *one = weight + r * hidden_size;
        const float *two = r + 1 < rows ? one + hidden_size : NULL;
        float *to = row_copy + r * across;
        for (ptrdiff_t k = 0; k < hidden_size; k += 2 * LANES, to += LANES) {
            const vector a0 = row_vector(one, k, hidden_size);
            const vector a1 = row_vector(one, k + LANES, hidden_size);
            const vector b0 = two ? row_vector(two, k, hidden_size) : nothing;
            const vector b1 = two ? row_vector(two, k + LANES, hidden_size) : nothing;
            vector_store(to, pair_neighbours(a0, a1));
            if (two)
                vector_store(to + across, pair_neighbours(b0, b1));
            if (column_copy) {
                vector_store(column_copy + r / 2 * down + k, pair_lanes(a0, b0));
                if (k + LANES < hidden_size)
                    vector_store(column_copy + r / 2 * down + k + LANES, pair_lanes(a1, b1));
            }
        }
    }
    return (struct tile_weights){row_copy, column_copy, across, down};
#elif BF16
    const ptrdiff_t stride = row_stride(hidden_size);
    (void)column_copy;
    for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t k = 0; k < hidden_size; k += LANES)
            vector_store(row_copy + r * stride + k,
                         round_bf16(row_vector(weight + r * hidden_size, k, hidden_size)));
    return (struct tile_weights){row_copy, row_copy, stride, stride};
#else
    (void)rows, (void)row_copy, (void)column_copy;
    return (struct tile_weights){weight, weight, hidden_size, hidden_size};
#endif
}

#endif
