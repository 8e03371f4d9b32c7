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

    /* 64-byte aligned; nothing in it outlives the call. Between the bytes for keep = 0 and for
     * keep = 1, as many scores are kept as fit and the rest are computed twice: same bits. */
    void *scratch;
    size_t scratch_bytes;
    enum precision precision;
    int threads;
};

struct softmax_step_scratch { /* result: bytes. keep = 1: room for all scores; 0: the least */
    ptrdiff_t batch, hidden_size, vocabulary;
    enum precision precision;
    int keep, threads;
};

struct softmax_forward {
    ptrdiff_t batch, hidden_size, vocabulary;
    const float *hidden;        /* (B, H) */
    const int32_t *targets;     /* (B,) each in [0, V) */
    const float *output_weight; /* (V, H) */
    const float *output_bias;   /* (V,) */

    double *log_normalizer; /* (B,) set: log sum_j exp(score_j) */
    double *target_score;   /* (B,) set: score of the target */

    void *scratch; /* softmax_forward_scratch bytes, 64-byte aligned */
    int threads;
};

struct softmax_forward_scratch { /* result: bytes */
    ptrdiff_t batch, hidden_size, vocabulary;
    int threads;
};

struct softmax_top_k {
    ptrdiff_t batch, hidden_size, vocabulary, k; /* 1 <= k <= V */
    const float *hidden;                         /* (B, H) */
    const float *output_weight;                  /* (V, H) */
    const float *output_bias;                    /* (V,) */

    int32_t *ids;  /* (B, k) set: by falling score, ties by rising id; NaN is the lowest score */
    float *scores; /* (B, k) set */

    void *scratch; /* softmax_top_k_scratch bytes, 64-byte aligned */
    int threads;
};

struct softmax_top_k_scratch { /* result: bytes */
    ptrdiff_t batch, hidden_size, vocabulary, k;
    int threads;
};

/* X(kernel's name, what it returns): as in kernels.h */
#define SOFTMAX_KERNELS(X)                                                                        \
    X(softmax_step_scratch, size_t)                                                               \
    X(softmax_step, int)                                                                          \
    X(softmax_forward_scratch, size_t)                                                            \
    X(softmax_forward, int)                                                                       \
    X(softmax_top_k_scratch, size_t)                                                              \
    X(softmax_top_k, int)

#define SOFTMAX_DECLARE(name, result) result FASTNPLM_NAME(name)(const struct name *);
SOFTMAX_KERNELS(SOFTMAX_DECLARE)

/* The forms that softmax_step chooses from. */
size_t FASTNPLM_NAME(softmax_float32_scratch)(const struct softmax_step_scratch *);
int FASTNPLM_NAME(softmax_float32)(const struct softmax_step *);
size_t FASTNPLM_NAME(softmax_bf16_scratch)(const struct softmax_step_scratch *);
int FASTNPLM_NAME(softmax_bf16)(const struct softmax_step *);

#endif
