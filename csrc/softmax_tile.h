/* Work on one tile of the vocabulary (TILE_ROWS rows) and one panel of examples (PANEL of them).
 *
 * Lanes are examples. Maxima, sums and rescaling then go down the tile lane by lane, with no sum
 * across a vector, and a row of output_weight is broadcast from its own memory: only the hidden
 * vectors are packed, once a step.
 *
 * A source that defines BF16 as 1 before including this gets the form with bfloat16 operands.
 */
#ifndef FASTNPLM_SOFTMAX_TILE_H
#define FASTNPLM_SOFTMAX_TILE_H

#include <float.h>
#include <math.h>

#include "product.h"
#include "vector_math.h"

#define PANEL (2 * LANES)

#ifndef BF16
#define BF16 0
#endif

/* Whether a word is a pair of operands, and how many words hold count operands. */
#define IN_PAIRS (PAIRS && BF16)
#define WORDS(count) (IN_PAIRS ? ((count) + 1) / 2 : (count))

/* x as the products see it. */
INLINE float operand(float x) { return BF16 ? round_bf16_scalar(x) : x; }

/* A lane's reference (what its exponents are relative to) moves only when a score exceeds it by
 * this much: then nearly always one reference serves the whole vocabulary, and a move, which
 * rescales what was summed, is rare. e^16 times any V is far from overflow. */
#define REFERENCE_SLACK 16.0f

/* Where an array of count elements goes in a scratch that has been given out up to end. */
INLINE size_t place(size_t *end, ptrdiff_t count, size_t size) {
    const size_t at = *end;
    *end += ((size_t)count * size + 63) / 64 * 64;
    return at;
}

/* words (WORDS(H), PANEL) = transpose(hidden[first .. first + PANEL, :]); zero where the batch
 * ends, and for examples whose weight is 0 (weights may be null): theirs may hold anything. */
static inline void pack_panel(const float *hidden, const float *weights, ptrdiff_t batch,
                       ptrdiff_t hidden_size, ptrdiff_t first, float *words) {
    const float *rows[PANEL];
    for (ptrdiff_t lane = 0; lane < PANEL; lane++) {
        const ptrdiff_t b = first + lane;
        rows[lane] = b < batch && (!weights || weights[b] != 0.0f) ? hidden + b * hidden_size : NULL;
    }
    const int step = IN_PAIRS ? 2 : 1;
    for (ptrdiff_t k = 0; k < hidden_size; k += step, words += PANEL)
        for (int v = 0; v < 2; v++) {
            float x[2][LANES] = {{0}, {0}};
            for (int i = 0; i < step && k + i < hidden_size; i++)
                for (int lane = 0; lane < LANES; lane++)
                    if (rows[v * LANES + lane])
                        x[i][lane] = rows[v * LANES + lane][k + i];
            vector word = vector_load(x[0]);
#if IN_PAIRS
            word = pair_lanes(word, vector_load(x[1]));
#elif BF16
            word = round_bf16(word);
#endif
            vector_store(words + v * LANES, word);
        }
}

INLINE void score_rows(const int rows, ptrdiff_t steps, const float *weight,
                       ptrdiff_t stride, const float *bias, const float *packed, float *scores,
                       vector highest[2]) {
    vector sums[SCORE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) { sums[r][0] = sums[r][1] = vector_splat(bias[r]); }
    product_of_rows(IN_PAIRS, rows, steps, weight, stride, packed, sums);
    UNROLL for (int r = 0; r < rows; r++) {
        vector_store(scores + r * PANEL, sums[r][0]);
        vector_store(scores + r * PANEL + LANES, sums[r][1]);
        highest[0] = vector_max(sums[r][0], highest[0]);
        highest[1] = vector_max(sums[r][1], highest[1]);
    }
}

/* scores (rows, PANEL) set: bias + weight . hidden; highest raised to their maxima (a NaN does not
 * count).
 *
 * weight (rows, steps) words, rows stride apart; bias (rows,); packed (steps, PANEL). Each sum runs
 * over H in order, so a score does not depend on the rows and examples it is computed with. */
static inline void score_tile(ptrdiff_t rows, ptrdiff_t steps, const float *weight,
                       ptrdiff_t stride, const float *bias, const float *packed, float *scores,
                       vector highest[2]) {
    for (; rows >= SCORE_ROWS; rows -= SCORE_ROWS) {
        score_rows(SCORE_ROWS, steps, weight, stride, bias, packed, scores, highest);
        weight += SCORE_ROWS * stride;
        bias += SCORE_ROWS;
        scores += SCORE_ROWS * PANEL;
    }
#define LAST_ROWS(n)                                                                              \
    case n:                                                                                       \
        score_rows(n, steps, weight, stride, bias, packed, scores, highest);                \
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

/* scores (rows, PANEL) become e^(score - reference), as operands of accumulate_hidden: floats, or
 * (WORDS(rows), PANEL) pairs of rows. sums (2 vectors) set to their sums. Where kept is not null it
 * receives them too, as operands of the weights' gradient: (blocks, GRADIENT_ROWS, WORDS(PANEL))
 * with blocks kept_stride words apart; rows that fill up the last block are set to 0 there. */
static inline void exponentials(ptrdiff_t rows, const vector reference[2], float *scores,
                         float *kept, ptrdiff_t kept_stride, vector sums[2]) {
    const ptrdiff_t width = WORDS(PANEL);
    const ptrdiff_t filled = (rows + GRADIENT_ROWS - 1) / GRADIENT_ROWS * GRADIENT_ROWS;
    float *to = scores;
    sums[0] = sums[1] = (vector){0};
    for (ptrdiff_t row = 0; row < filled; row += 2, scores += 2 * PANEL) {
        vector e[2][2];
        UNROLL for (int r = 0; r < 2; r++) {
            UNROLL for (int v = 0; v < 2; v++) {
                e[r][v] = (vector){0};
                if (row + r < rows) {
                    const vector x = vector_load(scores + r * PANEL + v * LANES);
                    e[r][v] = vector_exp_softmax(x - reference[v]);
                    sums[v] += e[r][v];
                }
#if BF16 && !PAIRS
                e[r][v] = round_bf16(e[r][v]);
#endif
            }
        }
        if (row < rows) {
#if IN_PAIRS
            vector_store(to, pair_lanes(e[0][0], e[1][0]));
            vector_store(to + LANES, pair_lanes(e[0][1], e[1][1]));
            to += PANEL;
#else
            UNROLL for (int r = 0; r < 2; r++, to += PANEL) {
                vector_store(to, e[r][0]);
                vector_store(to + LANES, e[r][1]);
            }
#endif
        }
        if (kept) {
            float *at = kept + row % GRADIENT_ROWS * width;
            for (ptrdiff_t i = 0; i < 2 * width; i += 16)
                __builtin_prefetch(at + kept_stride + i, 1); /* the next block, to be written */
            UNROLL for (int r = 0; r < 2; r++, at += width) {
#if IN_PAIRS
                vector_store(at, pair_neighbours(e[r][0], e[r][1]));
#else
                vector_store(at, e[r][0]);
                vector_store(at + LANES, e[r][1]);
#endif
            }
            if ((row + 2) % GRADIENT_ROWS == 0)
                kept += kept_stride;
        }
    }
}

/* gradient (H, PANEL) += transpose(weight) * exponentials, both in words of one or two rows:
 * weight (steps, H) with its rows stride apart, exponentials (steps, PANEL). Columns go in groups
 * as equal as possible, none so small that it runs at half speed. */
static inline void accumulate_hidden(ptrdiff_t steps, ptrdiff_t hidden_size,
                              const float *weight, ptrdiff_t stride, const float *exponential,
                              float *gradient) {
    ptrdiff_t groups = (hidden_size + SCORE_ROWS - 1) / SCORE_ROWS;
    for (ptrdiff_t k = 0; k < hidden_size; groups--) {
        const ptrdiff_t columns = (hidden_size - k + groups - 1) / groups;
#define COLUMNS(n)                                                                                \
    case n:                                                                                       \
        product_of_columns(IN_PAIRS, n, steps, weight + k, stride, exponential,             \
                           gradient + k * PANEL);                                                 \
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
