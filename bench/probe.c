/* What this processor can do at most: multiply-adds, and memory traffic. Compiled where the
 * benchmark runs, for the processor it runs on; never part of the package. */
#include <stddef.h>
#include <stdint.h>

#define LANES 16

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Twelve independent sums hide the latency of two multiply-add units; named one by one, because
 * an array of them would live in memory. */
#define TWELVE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define KEEP(n) __asm__ volatile("" : "+v"(sum##n)); /* the compiler may not skip it */
#define TOTAL(n) all += sum##n;

/* count rounds of twelve vector multiply-adds: 24 * LANES operations a round. */
float fused_multiply_adds(ptrdiff_t count, float factor)
{
    vec by = {0}, all = {0};
    by += factor;
#define START(n) vec sum##n = by * (float)n;
    TWELVE(START)
#undef START
    for (ptrdiff_t i = 0; i < count; i++) {
#define ADD(n) sum##n = sum##n * by + by;
        TWELVE(ADD)
#undef ADD
        TWELVE(KEEP)
    }
    TWELVE(TOTAL)
    return all[0];
}

#ifdef __AVX512BF16__
#include <immintrin.h>
/* The same for vdpbf16ps: 48 * LANES operations a round. */
float bfloat16_dots(ptrdiff_t count, float factor)
{
    __m512bh by = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(factor));
    vec all = {0};
#define START(n) __m512 sum##n = _mm512_set1_ps((float)n);
    TWELVE(START)
#undef START
    for (ptrdiff_t i = 0; i < count; i++) {
#define ADD(n) sum##n = _mm512_dpbf16_ps(sum##n, by, by);
        TWELVE(ADD)
#undef ADD
        TWELVE(KEEP)
    }
    TWELVE(TOTAL)
    return all[0];
}
#endif

/* to[i] = from[i]: count floats, a multiple of 4 * LANES. Traffic: a read and a write an element. */
void copy(ptrdiff_t count, const float *from, float *to)
{
    for (ptrdiff_t i = 0; i < count; i += 4 * LANES) {
        vec a = *(const vec_at *)(from + i), b = *(const vec_at *)(from + i + LANES);
        vec c = *(const vec_at *)(from + i + 2 * LANES), d = *(const vec_at *)(from + i + 3 * LANES);
        *(vec_at *)(to + i) = a;
        *(vec_at *)(to + i + LANES) = b;
        *(vec_at *)(to + i + 2 * LANES) = c;
        *(vec_at *)(to + i + 3 * LANES) = d;
    }
}

/* values[i] *= factor: read, modify, write in place. */
void modify(ptrdiff_t count, float factor, float *values)
{
    for (ptrdiff_t i = 0; i < count; i += 4 * LANES) {
        for (int k = 0; k < 4; k++) *(vec_at *)(values + i + k * LANES) *= factor;
    }
}
