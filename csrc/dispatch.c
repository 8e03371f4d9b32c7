/* setup.py defines FASTNPLM_HAS_... for each target that the compiler could build. The processor is
 * asked through the compiler's own builtins, which also ask whether the operating system saves the
 * wider registers. */
#include "dispatch.h"

#define LEVEL(target, is_supported, has_bf16)                                                      \
    {                                                                                              \
        extern const struct kernels kernels_##target;                                              \
        levels[count++] = (struct level){#target, &kernels_##target, is_supported, has_bf16};      \
    }

#if defined(__x86_64__)
static int has_v2(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}

static int has_v3(void) {
    return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static int has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#else
static int has_v2(void) { return 1; }
#endif

int dispatch_levels(struct level *levels) {
    int count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#ifdef FASTNPLM_HAS_BASELINE
    LEVEL(baseline, has_v2(), 0)
#endif
#ifdef FASTNPLM_HAS_NEON
    LEVEL(neon, has_v2(), 0)
#endif
#ifdef FASTNPLM_HAS_AVX2
    LEVEL(avx2, has_v3(), 0)
#endif
#ifdef FASTNPLM_HAS_AVX512
    LEVEL(avx512, has_v4(), 0)
#endif
#ifdef FASTNPLM_HAS_AVX512BF16
    LEVEL(avx512bf16, has_v4() && __builtin_cpu_supports("avx512bf16"), 1)
#endif
    return count;
}
