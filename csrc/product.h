/* The register-tile products the output layer is made of: sums of a few rows times a few vectors
 * that stay in registers for the whole of the loop over the inner dimension.
 *
 * Rows are broadcast from where they lie, one word at a time; only the other operand is packed, so
 * that a step of the loop reads it as whole vectors. A word is a float, or with pairs = 1 two
 * bfloat16 (bf16.h), and a step then does two steps' work. pairs, and the numbers of rows and
 * vectors, are constants at every call: the tests and loops over them vanish.
 */
#ifndef FASTNPLM_PRODUCT_H
#define FASTNPLM_PRODUCT_H

#include "bf16.h"

INLINE vector multiply_add(const int pairs, vector a, vector b, vector sum) {
    return pairs ? pair_multiply_add(a, b, sum) : a * b + sum;
}

/* Row r of up to 14 rows that lie stride words apart, from five registers: two bases, and 1, 3 and
 * 5 strides, which the addressing mode multiplies by 2 or 4. Left to itself the compiler keeps
 * fourteen pointers and reloads most of them from the stack at each step. */
struct row_addresses {
    const char *low, *high;
    ptrdiff_t one, three, five;
};

INLINE struct row_addresses row_addresses(const float *rows, ptrdiff_t stride) {
    struct row_addresses at;
    at.one = stride * (ptrdiff_t)sizeof(float);
    at.three = 3 * at.one;
    at.five = 5 * at.one;
    at.low = (const char *)rows;
    at.high = at.low + 7 * at.one;
    __asm__("" : "+r"(at.one), "+r"(at.three), "+r"(at.five), "+r"(at.high)); /* forget how */
    return at;
}

INLINE vector row_splat(const struct row_addresses *at, const int row) {
    const char *base = row < 7 ? at->low : at->high;
    const int r = row < 7 ? row : row - 7;
    const ptrdiff_t offset = r == 0   ? 0
                             : r == 1 ? at->one
                             : r == 2 ? at->one * 2
                             : r == 3 ? at->three
                             : r == 4 ? at->one * 4
                             : r == 5 ? at->five
                                      : at->three * 2;
    return vector_splat(*(const float *)(base + offset));
}

/* sums[r][v] += sum over s of a[r * a_stride + s] * b[s * 2 * LANES + v * LANES], rows x 2.
 *
 * a (rows, steps) with its rows a_stride apart; b (steps, 2 * LANES) packed. The rows below a are
 * fetched ahead: they are the next call's. */
INLINE void product_of_rows(const int pairs, const int rows, ptrdiff_t steps, const float *a,
                            ptrdiff_t a_stride, const float *b, vector sums[SCORE_ROWS][2]) {
    struct row_addresses at = row_addresses(a, a_stride);
    const float *ahead = a + rows * a_stride;
    for (ptrdiff_t s = 0; s < steps; s++) {
        __builtin_prefetch(ahead);
        ahead += rows;
        const vector b0 = vector_load(b), b1 = vector_load(b + LANES);
        b += 2 * LANES;
        UNROLL for (int r = 0; r < rows; r++) {
            const vector x = row_splat(&at, r);
            sums[r][0] = multiply_add(pairs, x, b0, sums[r][0]);
            sums[r][1] = multiply_add(pairs, x, b1, sums[r][1]);
        }
        at.low += sizeof(float);
        at.high += sizeof(float);
        __asm__("" : "+r"(at.low), "+r"(at.high));
    }
}

/* out[c][v] += sum over s of a[s * a_stride + c] * b[s * 2 * LANES + v * LANES], columns x 2: the
 * transpose of a times b.
 *
 * a (steps, columns) with its rows a_stride apart; b (steps, 2 * LANES); out (columns, 2 * LANES).
 * The sum begins at 0 and is added to out once: out runs over the whole vocabulary, and one chain of
 * float32 additions as long as that would lose a digit. */
INLINE void product_of_columns(const int pairs, const int columns, ptrdiff_t steps, const float *a,
                               ptrdiff_t a_stride, const float *b, float *out) {
    vector sums[SCORE_ROWS][2];
    UNROLL for (int c = 0; c < columns; c++) { sums[c][0] = sums[c][1] = (vector){0}; }
    UNROLL_TWICE for (ptrdiff_t s = 0; s < steps; s++) {
        __builtin_prefetch(a + 8 * a_stride);
        const vector b0 = vector_load(b), b1 = vector_load(b + LANES);
        UNROLL for (int c = 0; c < columns; c++) {
            const vector x = vector_splat(a[c]);
            sums[c][0] = multiply_add(pairs, x, b0, sums[c][0]);
            sums[c][1] = multiply_add(pairs, x, b1, sums[c][1]);
        }
        a += a_stride;
        b += 2 * LANES;
    }
    UNROLL for (int c = 0; c < columns; c++, out += 2 * LANES) {
        vector_store(out, vector_load(out) + sums[c][0]);
        vector_store(out + LANES, vector_load(out + LANES) + sums[c][1]);
    }
}

/* out[r][v] (+)= sum over blocks and s of a[r][s] * b[s][v], GRADIENT_ROWS x vectors.
 *
 * a (blocks, GRADIENT_ROWS, width), b (blocks * width, vectors * LANES), out (GRADIENT_ROWS, ...)
 * with its rows out_stride apart, overwritten if begin. Each step fetches from ahead, which moves
 * on by ahead_step floats, into the second-level cache: what will be needed next. */
INLINE void product_of_blocks(const int pairs, const int vectors, const int width, const int begin,
                              ptrdiff_t blocks, const float *a, const float *b, float *out,
                              ptrdiff_t out_stride, const float *ahead, ptrdiff_t ahead_step) {
    vector sums[GRADIENT_ROWS][3];
    UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) {
        UNROLL for (int v = 0; v < vectors; v++) {
            sums[r][v] = begin ? (vector){0} : vector_load(out + r * out_stride + v * LANES);
        }
    }
    for (ptrdiff_t block = 0; block < blocks; block++, a += GRADIENT_ROWS * width) {
        for (ptrdiff_t s = 0; s < width; s++) {
            vector row[3];
            __builtin_prefetch(ahead, 0, 2);
            ahead += ahead_step;
            UNROLL for (int v = 0; v < vectors; v++) { row[v] = vector_load(b + v * LANES); }
            b += vectors * LANES;
            UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) {
                const vector x = vector_splat(a[r * width + s]);
                UNROLL for (int v = 0; v < vectors; v++) {
                    sums[r][v] = multiply_add(pairs, x, row[v], sums[r][v]);
                }
            }
        }
    }
    UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) {
        UNROLL for (int v = 0; v < vectors; v++) {
            vector_store(out + r * out_stride + v * LANES, sums[r][v]);
        }
    }
}

#endif
