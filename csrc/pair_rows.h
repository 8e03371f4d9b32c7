/* Rows of float32 as the rows of words that a bfloat16 product reads (bf16.h): pairs of values
 * where the processor multiplies pairs, else the rounded values themselves. */
#ifndef FASTNPLM_PAIR_ROWS_H
#define FASTNPLM_PAIR_ROWS_H

#include "bf16.h"

/* Rows that become one row of words. */
#define PAIRED (PAIRS ? 2 : 1)

/* How many words hold so many values. */
INLINE ptrdiff_t words_of(ptrdiff_t values) { return (values + PAIRED - 1) / PAIRED; }

/* Lanes beyond count, which may be less than 0, are zero. */
INLINE vector load_up_to(const float *from, ptrdiff_t count) {
    if (count >= LANES)
        return vector_load(from);
    return count > 0 ? vector_load_first(from, count) : (vector){0};
}

INLINE void store_up_to(float *to, vector v, ptrdiff_t count) {
    if (count >= LANES)
        vector_store(to, v);
    else
        vector_store_first(to, v, count);
}

/* One row: to (words_of(count)) holds neighbours in pairs. */
INLINE void pair_across(float *to, const float *from, ptrdiff_t count) {
#if PAIRS
    for (ptrdiff_t k = 0; k < count; k += 2 * LANES) {
        const vector first = load_up_to(from + k, count - k);
        const vector second = load_up_to(from + k + LANES, count - k - LANES);
        store_up_to(to + k / 2, pair_neighbours(first, second), words_of(count - k));
    }
#else
    for (ptrdiff_t k = 0; k < count; k += LANES)
        store_up_to(to + k, round_bf16(load_up_to(from + k, count - k)), count - k);
#endif
}

/* PAIRED rows, one above the other: to (count) holds their columns' values in pairs. second may be
 * NULL, for the last of an odd number of rows, and is not looked at where words are no pairs. */
INLINE void pair_down(float *to, const float *first, const float *second, ptrdiff_t count) {
#if PAIRS
    for (ptrdiff_t k = 0; k < count; k += LANES) {
        const vector below = second ? load_up_to(second + k, count - k) : (vector){0};
        store_up_to(to + k, pair_lanes(load_up_to(first + k, count - k), below), count - k);
    }
#else
    (void)second;
    pair_across(to, first, count);
#endif
}

#endif
