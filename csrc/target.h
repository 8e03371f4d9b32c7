/* What differs from one instruction set to the next, and nothing else.
 *
 * Every kernel source is compiled once for each target, with the compiler's flags for that target
 * and its name:
 *
 *     baseline     -march=x86-64-v2                               -DFASTNPLM_TARGET=baseline
 *     avx2         -march=x86-64-v3                               -DFASTNPLM_TARGET=avx2
 *     avx512       -march=x86-64-v4 -mprefer-vector-width=512     -DFASTNPLM_TARGET=avx512
 *     avx512bf16   as avx512, and -mavx512bf16                    -DFASTNPLM_TARGET=avx512bf16
 *     neon         (AArch64 has it by itself)                     -DFASTNPLM_TARGET=neon
 *
 * and always with -std=gnu11 -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math. None of
 * these three changes a value that any kernel relies on, nor the importing process's floating-point
 * mode: they let a*b + c become one instruction, and sqrt and max become vector instructions.
 *
 * FASTNPLM_NAME(softmax_step) is softmax_step_avx512 in the avx512 build: that is how several
 * builds of one function live in one library.
 */
#ifndef FASTNPLM_TARGET_H
#define FASTNPLM_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifndef FASTNPLM_TARGET
#define FASTNPLM_TARGET baseline
#endif
#define FASTNPLM_JOIN_(name, target) name##_##target
#define FASTNPLM_JOIN(name, target) FASTNPLM_JOIN_(name, target)
#define FASTNPLM_NAME(name) FASTNPLM_JOIN(name, FASTNPLM_TARGET)

/* Register tiles of the matrix products, rows x vectors: as many sums as the registers hold beside
 * the operands. One step too large and every product spills to memory and runs ten times slower.
 * SCORE_ROWS x 2 serve the two products whose lanes are examples, GRADIENT_ROWS x 3 the one whose
 * lanes are columns. TILE_ROWS, the rows of the vocabulary that are worked on together, is a
 * multiple of both: its scores for a panel of examples stay in the first-level cache. */
#if defined(__AVX512F__) /* 32 registers of 16 floats */
#define VECTOR_BYTES 64
#define SCORE_ROWS 14
#define GRADIENT_ROWS 8
#define TILE_ROWS 112
#elif defined(__AVX2__) /* 16 registers of 8 floats */
#define VECTOR_BYTES 32
#define SCORE_ROWS 6
#define GRADIENT_ROWS 4
#define TILE_ROWS 192
#elif defined(__aarch64__) /* 32 registers of 4 floats */
#define VECTOR_BYTES 16
#define SCORE_ROWS 14
#define GRADIENT_ROWS 8
#define TILE_ROWS 224
#else /* 16 registers of 4 floats */
#define VECTOR_BYTES 16
#define SCORE_ROWS 6
#define GRADIENT_ROWS 4
#define TILE_ROWS 192
#endif

#define LANES (VECTOR_BYTES / 4)

#define INLINE static inline __attribute__((always_inline, unused))

/* Before a loop of constant length over an array of vectors: only if it is unrolled whole do the
 * elements live in registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t int_vector __attribute__((vector_size(VECTOR_BYTES)));

/* Loads and stores need no alignment: through memcpy, which both compilers turn into one move. */
INLINE vector vector_load(const float *from) {
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void vector_store(float *to, vector v) { memcpy(to, &v, sizeof v); }

INLINE vector vector_splat(float x) { return x - (vector){0}; }

INLINE int_vector int_splat(int32_t x) { return x - (int_vector){0}; }

/* The same bits read as the other type. */
INLINE int_vector vector_bits(vector v) { return (int_vector)v; }

INLINE vector vector_from_bits(int_vector v) { return (vector)v; }

/* mask lanes are 0 or -1, as comparisons of vectors give them. */
INLINE vector vector_select(int_vector mask, vector yes, vector no) {
    return (vector)((mask & (int_vector)yes) | (~mask & (int_vector)no));
}

/* a > b ? a : b in each lane, so b where either is NaN: put the value whose NaN must live second.
 * x86 has exactly that instruction, but gcc does not find it from a comparison and a selection. */
INLINE vector vector_max(vector a, vector b) {
#if defined(__AVX512F__)
    return (vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vector)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vector)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vector_select(a > b, a, b);
#endif
}

/* a < b ? a : b in each lane, so b where either is NaN. */
INLINE vector vector_min(vector a, vector b) { return vector_select(a < b, a, b); }

INLINE vector vector_sqrt(vector a) {
    vector r;
    for (int lane = 0; lane < LANES; lane++)
        r[lane] = __builtin_sqrtf(a[lane]);
    return r;
}

INLINE vector vector_abs(vector a) {
    return vector_from_bits(vector_bits(a) & int_splat(0x7fffffff));
}

/* |magnitude| with the sign of sign; magnitude must not be negative. */
INLINE vector vector_with_sign(vector magnitude, vector sign) {
    return vector_from_bits(vector_bits(magnitude) | (vector_bits(sign) & int_splat(INT32_MIN)));
}

/* The lanes' numbers, each with the bits of half flipped: which lane a lane is added to. */
#if LANES == 16
#define PARTNERS(half) LANES_FROM(0, half), LANES_FROM(4, half), LANES_FROM(8, half), LANES_FROM(12, half)
#elif LANES == 8
#define PARTNERS(half) LANES_FROM(0, half), LANES_FROM(4, half)
#else
#define PARTNERS(half) LANES_FROM(0, half)
#endif
#define LANES_FROM(at, half) (at) ^ (half), (at + 1) ^ (half), (at + 2) ^ (half), (at + 3) ^ (half)
#ifdef __clang__
#define ADD_PARTNERS(v, half) ((v) + __builtin_shufflevector(v, v, PARTNERS(half)))
#else
#define ADD_PARTNERS(v, half) ((v) + __builtin_shuffle(v, (int_vector){PARTNERS(half)}))
#endif

/* The sum of the lanes, in a fixed order: halves, quarters, ... */
INLINE float vector_sum(vector v) {
#if LANES == 16
    v = ADD_PARTNERS(v, 8);
#endif
#if LANES >= 8
    v = ADD_PARTNERS(v, 4);
#endif
    v = ADD_PARTNERS(v, 2);
    v = ADD_PARTNERS(v, 1);
    return v[0];
}

/* The first count lanes from memory, zero beyond: for the last columns of a row. */
INLINE vector vector_load_first(const float *from, ptrdiff_t count) {
    vector v = {0};
    memcpy(&v, from, (size_t)count * sizeof(float));
    return v;
}

INLINE void vector_store_first(float *to, vector v, ptrdiff_t count) {
    memcpy(to, &v, (size_t)count * sizeof(float));
}

#endif
