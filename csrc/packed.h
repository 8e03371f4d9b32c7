/* A matrix product: out(i, j) = sum over k of a(i, k) * b(k, j), b mostly packed beforehand.
 *
 * a is read where it lies, one value at a time, so it may be transposed at no cost. b is packed
 * into panels of two vectors of columns, [panel][k][columns of the panel], the last
 * columns filled up with zeros; or it is read where it lies, if its rows are whole vectors: that
 * pays where packing costs as much as it saves. Every element of out is summed over k in ascending order, in blocks
 * of PACKED_DEPTH: how rows are shared out among threads changes no bit.
 */
#ifndef FASTNPLM_PACKED_H
#define FASTNPLM_PACKED_H

#include "target.h"

#define PANEL (2 * LANES)
#define PACKED_DEPTH 1024

/* Rows of out that are computed together, so that their part of a stays in the cache. */
#define PACKED_ROWS (8 * SCORE_ROWS)

struct product {
    ptrdiff_t rows, columns, depth;
    const float *a;
    ptrdiff_t a_row, a_depth; /* steps of a along i and along k: one of them is 1 */
    const float *packed;
    ptrdiff_t b_row; /* unless 0, b is not packed: its rows lie this far apart at packed */
    float *out;
    ptrdiff_t out_row;
    const float *bias; /* NULL, or bias[j] is added to the product, */
    int linear; /* and tanh taken of the sum unless this is set */
    int pairs; /* a and packed hold pairs of bfloat16 (bf16.h), depth counts pairs */
};

/* Columns as they are packed: filled up to whole vectors. */
INLINE ptrdiff_t packed_columns(ptrdiff_t columns) {
    return (columns + LANES - 1) / LANES * LANES;
}

INLINE ptrdiff_t panel_count(ptrdiff_t columns) { return (columns + PANEL - 1) / PANEL; }

/* Columns of one panel, as packed. */
INLINE ptrdiff_t panel_width(ptrdiff_t columns, ptrdiff_t panel) {
    ptrdiff_t left = packed_columns(columns) - panel * PANEL;
    return left < PANEL ? left : PANEL;
}

INLINE ptrdiff_t row_blocks(ptrdiff_t rows) { return (rows + PACKED_ROWS - 1) / PACKED_ROWS; }

/* Pack one panel: the columns from panel * PANEL on of b, b(k, j) = b[k * b_depth + j]. packed is
 * the whole product's. */
void FASTNPLM_NAME(pack_columns)(const float *b, ptrdiff_t b_depth, ptrdiff_t depth,
                                 ptrdiff_t columns, ptrdiff_t panel, float *packed);

/* The same for a stretch of the depth: rows [from, from + depth) of a b with all rows. */
INLINE void pack_stretch(const float *b, ptrdiff_t b_depth, ptrdiff_t from, ptrdiff_t depth,
                         ptrdiff_t all, ptrdiff_t columns, ptrdiff_t panel, float *packed) {
    ptrdiff_t skipped = panel * PANEL * (all - depth) + from * panel_width(columns, panel);
    FASTNPLM_NAME(pack_columns)(b, b_depth, depth, columns, panel, packed + skipped);
}

/* The same for b(k, j) = b[k + j * b_column]. */
void FASTNPLM_NAME(pack_transposed)(const float *b, ptrdiff_t b_column, ptrdiff_t depth,
                                            ptrdiff_t columns, ptrdiff_t panel, float *packed);

/* Compute one block of PACKED_ROWS rows. */
void FASTNPLM_NAME(packed_block)(const struct product *product, ptrdiff_t block);

#endif
