/* What the two forms of negative sampling share: noise drawn for each example, and noise shared by
 * a block of examples.
 *
 * First all scores, from old rows: losses, the gradient of hidden, and for each pair (example,
 * word) the gradient of its score. Then, row by row, the pairs' gradients are summed and the row
 * takes its step; a row that one pair alone names has taken it by then (negative_example.c).
 */
#ifndef FASTNPLM_NEGATIVE_H
#define FASTNPLM_NEGATIVE_H

#include "groups.h"
#include "kernels.h"
#include "rules.h"
#include "vector_math.h"

/* From this many examples to a row of noise, and up to so many words for each of them, the products
 * pay and their workspace stays in proportion to the batch. */
#define LEAST_SHARED 8
#define MOST_WORDS_AN_EXAMPLE 16

/* Examples that go through the products together. */
#define GANG 128

struct negative_workspace {
    /* items are what a row's gradient is summed from: with noise for each example the pairs (b, k),
     * k = 0 the target; with shared noise first the targets, then (block, k) of the noise */
    ptrdiff_t items, blocks, gangs_a_block, gangs; /* gangs and blocks: 0 where noise is not shared */
    ptrdiff_t stretch;   /* gangs_a_block * GANG, the room for a block's examples */
    int32_t *words;      /* (items) an item's word, -1 if none of its pairs counts */
    float *grads;        /* gradient of each pair's score: (items), or (B) of the targets */
    float *noise_grads;  /* (blocks, K, stretch) the same of shared noise, 0 where it does not count */
    float *values;       /* (blocks) of hidden packed for the product that makes ... */
    float *noise_rows;   /* (blocks, K, hiddens) the gradient of each row of shared noise */
    float *noise_biases; /* (gangs, K) parts of the gradient of its bias */
    uint8_t *counts;     /* (gangs, K) whether any pair counts */
    uint8_t *grouping;   /* groups_bytes(items) */
    int32_t *summed;     /* (items) the groups that take their step after the first pass */
    float *own;          /* a thread's own, own_size floats each */
    ptrdiff_t own_size, hiddens; /* hiddens: H filled up to whole vectors */
    struct rule_values row_rule, bias_rule;
};

/* How gang number gang lies: its examples are [first, first + count) and the gang's begin at
 * offset in their block of size examples. */
struct gang {
    ptrdiff_t first, count, block, offset, size;
};

INLINE struct gang gang_of(const struct negative_step *call, const struct negative_workspace *w,
                           ptrdiff_t gang) {
    struct gang g;
    g.block = gang / w->gangs_a_block;
    g.offset = gang % w->gangs_a_block * GANG;
    g.first = g.block * call->block + g.offset;
    ptrdiff_t left = call->batch - g.block * call->block;
    g.size = left < call->block ? left : call->block;
    g.count = g.size - g.offset < GANG ? g.size - g.offset : GANG;
    return g;
}

/* From scores: the loss and the gradient of a score, both with the sign of a noise word (for a
 * target negate the score before and the gradient after). */
INLINE vector noise_loss(vector score) { return -vector_log_sigmoid(-score); }

INLINE vector noise_grad(vector score) { return vector_sigmoid(score); }

/* One step of a word's row by scale * grad (grad itself unless scaled) and of its bias. */
INLINE void step_word(const struct negative_step *call, const struct negative_workspace *w,
                      ptrdiff_t word, const int scaled, float scale, const float *grad,
                      float bias) {
    const ptrdiff_t hidden = call->hidden;
    float *weight = call->output_weight + word * hidden, *slot = call->weight_slots + word * hidden;
    float *bias_slot = call->bias_slots + word;
    float *second_slot = slot + call->vocabulary * hidden;
    apply_rule_run(call->rule, &w->row_rule, hidden, scaled, scale, grad, weight, slot, second_slot);
    apply_rule_once(call->rule, &w->bias_rule, bias, call->output_bias + word, bias_slot,
                    bias_slot + call->vocabulary);
}

/* The first pass over one example, or over one gang. */
void FASTNPLM_NAME(negative_example)(const struct negative_step *call,
                                     const struct negative_workspace *w,
                                     const struct groups *groups, ptrdiff_t b);
void FASTNPLM_NAME(negative_gang)(const struct negative_step *call,
                                  const struct negative_workspace *w, ptrdiff_t gang, float *own);
ptrdiff_t FASTNPLM_NAME(negative_gang_floats)(ptrdiff_t negatives, ptrdiff_t hidden);

/* When all gangs are done: part of the gradient of the rows of a block's noise. */
void FASTNPLM_NAME(negative_rows)(const struct negative_step *call,
                                  const struct negative_workspace *w, ptrdiff_t block,
                                  ptrdiff_t part);

#endif
