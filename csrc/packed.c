/* The product's packing and its inner loop, whose sums all stay in registers. */
#include "packed.h"

#include "product.h"
#include "vector_math.h"

void FASTNPLM_NAME(pack_columns)(const float *b, ptrdiff_t b_depth, ptrdiff_t depth,
                                 ptrdiff_t columns, ptrdiff_t panel, float *packed) {
    ptrdiff_t width = panel_width(columns, panel);
    ptrdiff_t first = panel * PANEL;
    ptrdiff_t real = columns - first < width ? columns - first : width;
    float *to = packed + first * depth;
    for (ptrdiff_t k = 0; k < depth; k++, to += width) {
        const float *from = b + k * b_depth + first;
        if (real == PANEL) {
            for (int v = 0; v < 2; v++)
                vector_store(to + v * LANES, vector_load(from + v * LANES));
        } else {
            for (ptrdiff_t j = 0; j < real; j++)
                to[j] = from[j];
            for (ptrdiff_t j = real; j < width; j++)
                to[j] = 0.0f;
        }
    }
}

void FASTNPLM_NAME(pack_transposed)(const float *b, ptrdiff_t b_column, ptrdiff_t depth,
                                            ptrdiff_t columns, ptrdiff_t panel, float *packed) {
    enum { STRETCH = 64 }; /* of k at a time: the lines written to stay in the nearest cache */
    ptrdiff_t width = panel_width(columns, panel);
    ptrdiff_t first = panel * PANEL;
    ptrdiff_t real = columns - first < width ? columns - first : width;
    float *to = packed + first * depth;
    for (ptrdiff_t k0 = 0; k0 < depth; k0 += STRETCH) {
        ptrdiff_t end = k0 + STRETCH < depth ? k0 + STRETCH : depth;
        for (ptrdiff_t j = 0; j < real; j++)
            for (ptrdiff_t k = k0; k < end; k++)
                to[k * width + j] = b[k + (first + j) * b_column];
        for (ptrdiff_t j = real; j < width; j++)
            for (ptrdiff_t k = k0; k < end; k++)
                to[k * width + j] = 0.0f;
    }
}

/* How a lies: its rows one after another, or its columns. */
enum side { ROWS_OF_A, COLUMNS_OF_A };

/* sums = rows of a times vectors of a panel, over k in [from, to): pairs, rows, vectors and side are
 * constants after inlining, so the sums are registers. */
INLINE void multiply(const struct product *p, const int pairs, const enum side side,
                     const int rows, const int vectors, const float *a, const float *b,
                     ptrdiff_t steps, vector sums[SCORE_ROWS][2]) {
    struct row_addresses at = row_addresses(a, p->a_row);
    ptrdiff_t a_depth = p->a_depth, b_row = p->b_row ? p->b_row : vectors * LANES;
    for (ptrdiff_t k = 0; k < steps; k++) {
        const vector b0 = vector_load(b), b1 = vectors > 1 ? vector_load(b + LANES) : b0;
        b += b_row;
        UNROLL for (int r = 0; r < rows; r++) {
            const vector x = side == ROWS_OF_A ? row_splat(&at, r) : vector_splat(a[r]);
            sums[r][0] = multiply_add(pairs, x, b0, sums[r][0]);
            if (vectors > 1)
                sums[r][1] = multiply_add(pairs, x, b1, sums[r][1]);
        }
        if (side == ROWS_OF_A) {
            at.low += sizeof(float);
            at.high += sizeof(float);
            __asm__("" : "+r"(at.low), "+r"(at.high));
        } else {
            a += a_depth;
        }
    }
}

/* Put a tile's sums (rows of vectors * LANES) into out: at its edge, on top of the sums of earlier
 * k, or through the bias and, unless the product is linear, tanh. */
static void finish(const struct product *p, int rows, int vectors, ptrdiff_t row, ptrdiff_t column,
                   int adds, const float *bias, const float *sums) {
    for (int r = 0; r < rows; r++) {
        float *out = p->out + (row + r) * p->out_row;
        for (int v = 0; v < vectors; v++, sums += LANES) {
            const ptrdiff_t j = column + v * LANES, left = p->columns - j;
            vector value = vector_load(sums);
            if (left >= LANES) {
                if (adds)
                    value += vector_load(out + j);
                if (bias)
                    value += vector_load(bias + j);
                if (bias && !p->linear)
                    value = vector_tanh(value);
                vector_store(out + j, value);
            } else {
                if (adds)
                    value += vector_load_first(out + j, left);
                if (bias)
                    value += vector_load_first(bias + j, left);
                if (bias && !p->linear)
                    value = vector_tanh(value);
                vector_store_first(out + j, value, left);
            }
        }
    }
}

INLINE void tile(const struct product *p, const int pairs, const enum side side, const int rows,
                 const int vectors, ptrdiff_t row, ptrdiff_t column, ptrdiff_t from, ptrdiff_t to) {
    vector sums[SCORE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (vector){0};
    const float *a = p->a + row * p->a_row + from * p->a_depth;
    const float *b = p->packed + (p->b_row ? column + from * p->b_row
                                           : column * p->depth + from * vectors * LANES);
    multiply(p, pairs, side, rows, vectors, a, b, to - from, sums);
    const float *bias = to == p->depth ? p->bias : NULL;
    float *out = p->out + row * p->out_row + column;
    ptrdiff_t step = p->out_row;
    float apart[SCORE_ROWS * 2 * LANES];
    const int is_plain = from == 0 && !bias && p->columns - column >= vectors * LANES;
    if (!is_plain) {
        out = apart;
        step = vectors * LANES;
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < vectors; v++) vector_store(out + v * LANES, sums[r][v]);
        out += step;
    }
    if (!is_plain)
        finish(p, rows, vectors, row, column, from > 0, bias, apart);
}

#define TILE(pairs, rows)                                                                          \
    case rows:                                                                                     \
        if (p->a_row == 1 && vectors == 1)                                                         \
            tile(p, pairs, COLUMNS_OF_A, rows, 1, row, column, from, to);                          \
        else if (p->a_row == 1)                                                                    \
            tile(p, pairs, COLUMNS_OF_A, rows, 2, row, column, from, to);                          \
        else if (vectors == 1)                                                                     \
            tile(p, pairs, ROWS_OF_A, rows, 1, row, column, from, to);                             \
        else                                                                                       \
            tile(p, pairs, ROWS_OF_A, rows, 2, row, column, from, to);                             \
        break;

#define TILES_TO_6(pairs)                                                                          \
    TILE(pairs, 1) TILE(pairs, 2) TILE(pairs, 3) TILE(pairs, 4) TILE(pairs, 5) TILE(pairs, 6)

#if SCORE_ROWS > 6
#define TILES(pairs)                                                                               \
    TILES_TO_6(pairs)                                                                              \
    TILE(pairs, 7) TILE(pairs, 8) TILE(pairs, 9) TILE(pairs, 10)                                   \
    TILE(pairs, 11) TILE(pairs, 12) TILE(pairs, 13) TILE(pairs, 14)
#else
#define TILES(pairs) TILES_TO_6(pairs)
#endif

static void any_tile(const struct product *p, int rows, int vectors, ptrdiff_t row,
                     ptrdiff_t column, ptrdiff_t from, ptrdiff_t to) {
    switch (rows) {
        TILES(0)
    }
}

#if PAIRS
static void any_tile_of_pairs(const struct product *p, int rows, int vectors, ptrdiff_t row,
                              ptrdiff_t column, ptrdiff_t from, ptrdiff_t to) {
    switch (rows) {
        TILES(1)
    }
}
#else
#define any_tile_of_pairs any_tile /* rounded values: the same product */
#endif

void FASTNPLM_NAME(packed_block)(const struct product *p, ptrdiff_t block) {
    ptrdiff_t first = block * PACKED_ROWS;
    ptrdiff_t rows = p->rows - first < PACKED_ROWS ? p->rows - first : PACKED_ROWS;
    ptrdiff_t tiles = (rows + SCORE_ROWS - 1) / SCORE_ROWS;
    ptrdiff_t from = 0;
    do { /* once also for a depth of 0: the product is then 0, not whatever was there */
        ptrdiff_t to = from + PACKED_DEPTH < p->depth ? from + PACKED_DEPTH : p->depth;
        for (ptrdiff_t column = 0; column < p->columns; column += PANEL) {
            ptrdiff_t left = packed_columns(p->columns) - column;
            int vectors = (int)(left < PANEL ? left : PANEL) / LANES;
            for (ptrdiff_t t = 0; t < tiles; t++) { /* tiles of nearly equal height */
                ptrdiff_t row = rows * t / tiles, end = rows * (t + 1) / tiles;
                (p->pairs ? any_tile_of_pairs : any_tile)(p, (int)(end - row), vectors,
                                                          first + row, column, from, to);
            }
        }
        from = to;
    } while (from < p->depth);
}
