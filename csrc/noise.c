/* Draws from an alias table (Walker 1977): one multiplication and one look-up a word. */
#include "target.h"

#include "kernels.h"
#include "threads.h"

enum { AHEAD = 16 };

INLINE uint64_t point_of(uint64_t bits, uint64_t count) {
    return (bits >> 32) * count + (((bits & 0xffffffffu) * count) >> 32);
}

ptrdiff_t FASTNPLM_NAME(draw_noise)(const struct draw_noise *call) {
    enum { BLOCK = 1024 };
    uint64_t count = (uint64_t)call->vocabulary;
    ptrdiff_t blocks = (call->count + BLOCK - 1) / BLOCK;
    ptrdiff_t bad = PTRDIFF_MAX;
    int threads = threads_for(call->count * 16, call->threads);
#pragma omp parallel for schedule(static) reduction(min : bad) num_threads(threads) if (threads > 1)
    for (ptrdiff_t block = 0; block < blocks; block++) {
        ptrdiff_t end = (block + 1) * BLOCK < call->count ? (block + 1) * BLOCK : call->count;
        for (ptrdiff_t r = block * BLOCK; r < end; r++) {
            if (r + AHEAD < end) {
                uint64_t column = point_of(call->bits[r + AHEAD], count) >> 32;
                __builtin_prefetch(call->threshold + column);
                __builtin_prefetch(call->alias + column);
            }
            uint64_t point = point_of(call->bits[r], count);
            uint64_t column = point >> 32;
            /* Which of the two is anyone's guess: both are read, and no branch is taken. */
            int32_t other = call->alias[column];
            int32_t stays = -(int32_t)((uint32_t)point < call->threshold[column]);
            int32_t word = ((int32_t)column & stays) | (other & ~stays);
            if ((uint32_t)word >= count && bad == PTRDIFF_MAX)
                bad = (ptrdiff_t)column;
            call->noise[r] = word;
        }
    }
    return bad == PTRDIFF_MAX ? -1 : bad;
}
