/* The output layer: scores of the whole vocabulary, softmax, loss, gradients and update, fused.
 *
 * One training step (softmax_step), and the forward-only forms for evaluation and prediction
 * (softmax_forward, softmax_top_k). None of them ever holds a V x H gradient or normalised B x V
 * probabilities. All give the same bits for any number of threads. docs/kernels.md derives them.
 *
 * Shapes: B = batch, H = hidden_size, V = vocabulary. Arrays are row-major and contiguous.
 */
#ifndef FASTNPLM_SOFTMAX_H
#define FASTNPLM_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

#include "rules.h"

enum precision { PRECISION_FLOAT32, PRECISION_BFLOAT16 };

struct softmax_step {
    ptrdiff_t batch, hidden_size, vocabulary;
    const float *hidden;    /* (B, H) */
    const int32_t *targets; /* (B,) each in [0, V): the caller has checked */
    const float *weights;   /* (B,) of the examples, usually 1/B; 0 leaves the example out */
    enum rule rule;
    const double *hyper; /* (HYPER_COUNT,) see rules.h */

    double *losses;     /* (B,) set: -log p(target) in nats, unweighted; 0 where the weight is 0 */
    float *grad_hidden; /* (B, H) set: gradient of sum_b weights[b] * losses[b] */

    float *output_weight; /* (V, H) updated in place */
    float *output_bias;   /* (V,) updated in place, without decay */
    float *weight_slots;  /* (rule_slots, V, H) optimiser state, updated */
    float *bias_slots;    /* (rule_slots, V) */

    void *scratch; /* 64-byte aligned; nothing in it outlives the call */
    size_t scratch_bytes;
    enum precision precision;
    int threads;
};

struct softmax_forward {
    ptrdiff_t batch, hidden_size, vocabulary;
    const float *hidden;        /* (B, H) */
    const int32_t *targets;     /* (B,) each in [0, V) */
    const float *output_weight; /* (V, H) */
    const float *output_bias;   /* (V,) */

    double *log_normalizer; /* (B,) set: log sum_j exp(score_j) */
    double *target_score;   /* (B,) set: score of the target */

    void *scratch;
    size_t scratch_bytes;
    int threads;
};

struct softmax_top_k {
    ptrdiff_t batch, hidden_size, vocabulary, k; /* 1 <= k <= V - first_allowed */
    ptrdiff_t first_allowed;                     /* ids below it are never returned */
    const float *hidden;                         /* (B, H) */
    const float *output_weight;                  /* (V, H) */
    const float *output_bias;                    /* (V,) */

    int32_t *ids;  /* (B, k) set: by falling score, ties by rising id */
    float *scores; /* (B, k) set */

    void *scratch;
    size_t scratch_bytes;
    int threads;
};

/* Bytes of scratch. keep = 1: room for every score of the batch; keep = 0: the least that works,
 * at the price of computing the scores twice. Anything between keeps what fits; the result's bits
 * do not depend on it. */
#define DECLARE_SOFTMAX_(target)                                                                  \
    size_t softmax_step_scratch_##target(ptrdiff_t batch, ptrdiff_t hidden_size,                  \
                                         ptrdiff_t vocabulary, int threads,                       \
                                         enum precision precision, int keep);                     \
    void softmax_step_##target(const struct softmax_step *step);                                  \
    size_t softmax_forward_scratch_##target(ptrdiff_t batch, ptrdiff_t hidden_size,               \
                                            ptrdiff_t vocabulary, int threads);                   \
    void softmax_forward_##target(const struct softmax_forward *forward);                         \
    size_t softmax_top_k_scratch_##target(ptrdiff_t batch, ptrdiff_t hidden_size,                 \
                                          ptrdiff_t vocabulary, ptrdiff_t k, int threads);        \
    void softmax_top_k_##target(const struct softmax_top_k *top);
#define DECLARE_SOFTMAX(target) DECLARE_SOFTMAX_(target)

DECLARE_SOFTMAX(FASTNPLM_TARGET)

#endif
