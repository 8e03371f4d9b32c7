/* Work on one tile of the vocabulary (TILE_ROWS rows) and one panel of examples (PANEL of them).
 *
 * Lanes are examples. Maxima, sums and rescaling then go down the tile lane by lane, with no sum
 * across a vector, and a row of output_weight is broadcast from its own memory: only the hidden
 * vectors are packed, once a step.
 *
 * In training, scores are kept in units of ln 2: the packed hidden vectors and the bias are
 * multiplied by log2 e, so that exp is a power of two without a multiplication. Evaluation takes
 * them as they are. unit is that factor.
 */
#ifndef FASTNPLM_SOFTMAX_TILE_H
#define FASTNPLM_SOFTMAX_TILE_H

#include <math.h>

#include "product.h"
#include "vector_math.h"

#define PANEL (2 * LANES)
#define LOG2_E 1.44269504088896340736
#define LN_2 0.69314718055994530942

/* A lane's reference (what its exponents are relative to) moves only when a score exceeds it by
 * this many powers of two: then nearly always one reference serves the whole vocabulary, and a
 * move, which rescales what was summed, is rare. 2^24 times any V is far from overflow. */
#define REFERENCE_SLACK 24.0f

/* Where an array of count elements goes in a scratch that has been given out up to end. */
INLINE size_t place(size_t *end, ptrdiff_t count, size_t size) {
    const size_t at = *end;
    *end += ((size_t)count * size + 63) / 64 * 64;
    return at;
}

/* packed (H, PANEL) = unit * transpose(hidden[first .. first + PANEL, :]); zero where the
 * batch ends, and for examples whose weight is 0 (weights may be null): their hidden vector may
 * hold anything. */
static inline void pack_panel(const float *hidden, const float *weights, ptrdiff_t batch,
                              ptrdiff_t hidden_size, ptrdiff_t first, float unit, float *packed) {
    for (ptrdiff_t lane = 0; lane < PANEL; lane++) {
        const ptrdiff_t b = first + lane;
        const int used = b < batch && (!weights || weights[b] != 0.0f);
        for (ptrdiff_t k = 0; k < hidden_size; k++)
            packed[k * PANEL + lane] = used ? hidden[b * hidden_size + k] * unit : 0.0f;
    }
}

INLINE void score_rows(const int rows, ptrdiff_t hidden_size, const float *weight,
                       const float *bias, float unit, const float *packed, float *scores,
                       vector highest[2]) {
    vector sums[SCORE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) {
        sums[r][0] = sums[r][1] = vector_splat(bias[r] * unit);
    }
    product_of_rows(rows, hidden_size, weight, hidden_size, packed, sums);
    UNROLL for (int r = 0; r < rows; r++) {
        vector_store(scores + r * PANEL, sums[r][0]);
        vector_store(scores + r * PANEL + LANES, sums[r][1]);
        highest[0] = vector_max(sums[r][0], highest[0]);
        highest[1] = vector_max(sums[r][1], highest[1]);
    }
}

/* scores (rows, PANEL) set: unit * (bias + weight . hidden); highest raised to their maxima (a NaN
 * does not count).
 *
 * weight (rows, H), bias (rows,), packed (H, PANEL). Each sum runs over H in order, so a score does
 * not depend on which rows and examples it is computed with. */
static inline void score_tile(ptrdiff_t rows, ptrdiff_t hidden_size, const float *weight,
                              const float *bias, float unit, const float *packed, float *scores,
                              vector highest[2]) {
    for (; rows >= SCORE_ROWS; rows -= SCORE_ROWS) {
        score_rows(SCORE_ROWS, hidden_size, weight, bias, unit, packed, scores, highest);
        weight += SCORE_ROWS * hidden_size;
        bias += SCORE_ROWS;
        scores += SCORE_ROWS * PANEL;
    }
#define LAST_ROWS(n)                                                                              \
    case n:                                                                                       \
        score_rows(n, hidden_size, weight, bias, unit, packed, scores, highest);                        \
        break;
    switch (rows) {
        LAST_ROWS(1)
        LAST_ROWS(2)
        LAST_ROWS(3)
        LAST_ROWS(4)
        LAST_ROWS(5)
#if SCORE_ROWS > 6
        LAST_ROWS(6)
        LAST_ROWS(7)
        LAST_ROWS(8)
        LAST_ROWS(9)
        LAST_ROWS(10)
        LAST_ROWS(11)
        LAST_ROWS(12)
        LAST_ROWS(13)
#endif
    }
#undef LAST_ROWS
}

/* scores (rows, PANEL) become 2^(score - reference); sums (2 vectors) set to their sums. Where kept
 * is not null it receives them too, as (blocks, GRADIENT_ROWS, PANEL) with blocks kept_stride
 * apart; the rows that fill up the last block are set to 0 there. */
static inline void exponentials(ptrdiff_t rows, const vector reference[2], float *scores,
                                float *kept, ptrdiff_t kept_stride, vector sums[2]) {
    sums[0] = sums[1] = (vector){0};
    ptrdiff_t row = 0;
    for (ptrdiff_t r = 0; row < rows; row++) {
        const vector e0 = vector_exp2_nonpositive(vector_load(scores) - reference[0]);
        const vector e1 = vector_exp2_nonpositive(vector_load(scores + LANES) - reference[1]);
        sums[0] += e0;
        sums[1] += e1;
        vector_store(scores, e0);
        vector_store(scores + LANES, e1);
        scores += PANEL;
        if (kept) {
            vector_store(kept + r * PANEL, e0);
            vector_store(kept + r * PANEL + LANES, e1);
            if (++r == GRADIENT_ROWS) {
                r = 0;
                kept += kept_stride;
            }
        }
    }
    if (kept)
        for (; row % GRADIENT_ROWS; row++)
            memset(kept + (row % GRADIENT_ROWS) * PANEL, 0, PANEL * sizeof(float));
}

/* gradient (H, PANEL) += transpose(weight) * exponentials, weight (rows, H), exponentials
 * (rows, PANEL): columns in groups as equal as possible, none so small that it runs at half speed. */
static inline void accumulate_hidden(ptrdiff_t rows, ptrdiff_t hidden_size, const float *weight,
                                     const float *exponential, float *gradient) {
    ptrdiff_t groups = (hidden_size + SCORE_ROWS - 1) / SCORE_ROWS;
    for (ptrdiff_t k = 0; k < hidden_size; groups--) {
        const ptrdiff_t columns = (hidden_size - k + groups - 1) / groups;
#define COLUMNS(n)                                                                                \
    case n:                                                                                       \
        product_of_columns(n, rows, weight + k, hidden_size, exponential, gradient + k * PANEL);  \
        break;
        switch (columns) {
            COLUMNS(1)
            COLUMNS(2)
            COLUMNS(3)
            COLUMNS(4)
            COLUMNS(5)
            COLUMNS(6)
#if SCORE_ROWS > 6
            COLUMNS(7)
            COLUMNS(8)
            COLUMNS(9)
            COLUMNS(10)
            COLUMNS(11)
            COLUMNS(12)
            COLUMNS(13)
            COLUMNS(14)
#endif
        }
#undef COLUMNS
        k += columns;
    }
}

#endif
