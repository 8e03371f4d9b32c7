/* bfloat16 operands: the upper half of a float32, rounded to nearest, ties to even.
 *
 * Where the processor multiplies pairs of them (PAIRS), a pair is one 32-bit word, so that arrays
 * of pairs are arrays of words that go through the same loops as floats. Elsewhere the operands are
 * rounded but stay float32: the same products, not faster.
 */
#ifndef FASTNPLM_BF16_H
#define FASTNPLM_BF16_H

#include "target.h"

#ifdef __AVX512BF16__
#define PAIRS 1
#include <immintrin.h>

/* sum + a.first * b.first + a.second * b.second in each lane, a and b pairs */
INLINE vector pair_multiply_add(vector a, vector b, vector sum) {
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

/* The pairs (first[0], first[1]), (first[2], first[3]), ..., then those of second. */
INLINE vector pair_neighbours(vector first, vector second) {
    return (vector)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

/* The pairs (first[0], second[0]), (first[1], second[1]), ... */
INLINE vector pair_lanes(vector first, vector second) {
    const __m512i apart = (__m512i)pair_neighbours(first, second);
    const __m512i order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4,
        19, 3, 18, 2, 17, 1, 16, 0);
    return (vector)_mm512_permutexvar_epi16(order, apart);
}

INLINE vector pair_first(vector pairs) { return (vector)((int_vector)pairs << 16); }

INLINE vector pair_second(vector pairs) { return (vector)((int_vector)pairs & int_splat(-65536)); }

#else
#define PAIRS 0

INLINE vector pair_multiply_add(vector a, vector b, vector sum) { return a * b + sum; }

#endif

/* x rounded to bfloat16, as float32; NaN stays NaN. */
INLINE vector round_bf16(vector x) {
    const int_vector bits = vector_bits(x);
    const int_vector rounded = (bits + int_splat(0x7fff) + ((bits >> 16) & 1)) & int_splat(-65536);
    return vector_select(x == x, vector_from_bits(rounded), x);
}

/* The same for one float. */
INLINE float round_bf16_scalar(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (int32_t)(((uint32_t)bits + 0x7fffu + ((uint32_t)bits >> 16 & 1)) & 0xffff0000u);
    float rounded;
    memcpy(&rounded, &bits, sizeof bits);
    return x == x ? rounded : x;
}

#endif
