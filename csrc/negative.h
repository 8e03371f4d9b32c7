/* What the two forms of negative sampling share: noise drawn for each example, and noise shared by
 * a block of examples.
 *
 * Both go twice over the rows named. First all scores, from old rows: losses, the gradient of
 * hidden, and for each pair (example, word) the gradient of its score. Then, row by row, the
 * pairs' gradients are summed and the row takes its step.
 */
#ifndef FASTNPLM_NEGATIVE_H
#define FASTNPLM_NEGATIVE_H

#include "kernels.h"
#include "vector_math.h"

/* From this many examples to a row of noise the products pay. */
#define LEAST_SHARED 8

/* Examples that go through the products together. */
#define GANG 128

struct negative_workspace {
    /* items are what a row's gradient is summed from: with noise for each example the pairs (b, k),
     * k = 0 the target; with shared noise first the targets, then (gang, k) of the noise */
    ptrdiff_t items, gangs_a_block, gangs;
    int32_t *words;    /* (items) an item's word, -1 if none of its pairs counts */
    float *grads;      /* gradient of each pair's score: (items), or (B) and (gangs, K, GANG) */
    uint8_t *grouping; /* groups_bytes(items) */
    float *own;        /* a thread's own, own_size floats each */
    ptrdiff_t own_size;
};

/* How gang number gang lies: its examples are [first, first + count), its noise row block. */
struct gang {
    ptrdiff_t first, count, block;
};

INLINE struct gang gang_of(const struct negative_step *call, const struct negative_workspace *w,
                           ptrdiff_t gang) {
    struct gang g;
    g.block = gang / w->gangs_a_block;
    ptrdiff_t end = (g.block + 1) * call->block;
    g.first = g.block * call->block + gang % w->gangs_a_block * GANG;
    end = end < call->batch ? end : call->batch;
    g.count = end - g.first < GANG ? end - g.first : GANG;
    return g;
}

/* From scores: the loss and the gradient of a score, both with the sign of a noise word (for a
 * target negate the score before and the gradient after). */
INLINE vector noise_loss(vector score) { return -vector_log_sigmoid(-score); }

INLINE vector noise_grad(vector score) { return vector_sigmoid(score); }

/* The first pass over one example, or over one gang. */
void FASTNPLM_NAME(negative_example)(const struct negative_step *call,
                                     const struct negative_workspace *w, ptrdiff_t b);
void FASTNPLM_NAME(negative_gang)(const struct negative_step *call,
                                  const struct negative_workspace *w, ptrdiff_t gang, float *own);
ptrdiff_t FASTNPLM_NAME(negative_gang_floats)(ptrdiff_t negatives, ptrdiff_t hidden);

#endif
