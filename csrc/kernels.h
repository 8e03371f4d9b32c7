/* Every kernel of the library: its arguments, and the table of one instruction set's kernels.
 *
 * A kernel takes one structure, because native.pyx has checked everything in it: shapes, ids,
 * alignment, that what is written overlaps nothing. It returns 0, or -1 where it could not get
 * memory; nothing has then changed. Names and meaning are those of fastnplm/kernels/reference*.py.
 *
 * Sizes: batch B, context N, dim M, hidden H, vocabulary V, negatives K.
 */
#ifndef FASTNPLM_KERNELS_H
#define FASTNPLM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "rules.h"
#include "softmax.h"

struct form_contexts {
    const void *tokens; /* (count) uint16 if narrow, else int32 */
    const int64_t *positions; /* (batch) */
    ptrdiff_t batch, context;
    int32_t narrow, start_id, end_id;
    int32_t *contexts; /* (batch, context) */
    int32_t *targets; /* (batch) */
};

struct find_bad_id { /* result: where the first id outside [0, limit) stands, or -1 */
    const int32_t *ids; /* (count) */
    ptrdiff_t count, limit;
};

struct gather_rows {
    const int32_t *ids; /* (count) */
    const float *table; /* (V, dim) */
    float *rows; /* (count, dim) */
    ptrdiff_t count, dim;
    int threads;
};

struct scatter_update {
    const int32_t *ids; /* (count) */
    const float *grads; /* (count, dim) */
    enum rule rule;
    const double *hyper; /* (6) */
    float *table; /* (vocabulary, dim) */
    float *slots; /* (S, vocabulary, dim) */
    ptrdiff_t count, dim, vocabulary;
    int threads;
};

struct dense_update {
    const float *grad; /* (count) */
    enum rule rule;
    const double *hyper; /* (6) */
    float *parameter; /* (count) */
    float *slots; /* (S, count) */
    ptrdiff_t count;
    int threads;
};

struct bias_tanh {
    const float *bias; /* (hidden) */
    float *values; /* (batch, hidden) */
    ptrdiff_t batch, hidden;
    int threads;
};

struct tanh_backward {
    const float *values; /* (batch, hidden); NULL: there was no tanh, only sums are wanted */
    float *grad_bias; /* (hidden) */
    float *grad_hidden; /* (batch, hidden) */
    ptrdiff_t batch, hidden;
    int threads;
};

struct dropout {
    const uint8_t *mask; /* (count) */
    float scale;
    float *values; /* (count) */
    ptrdiff_t count;
    int threads;
};

struct layer_forward {
    const float *inputs; /* (batch, width) */
    const float *weight; /* (hidden, width) */
    const float *bias; /* (hidden) */
    float *values; /* (batch, hidden) */
    ptrdiff_t batch, width, hidden;
    int linear; /* no tanh */
    int threads;
};

struct layer_backward {
    const float *inputs; /* (batch, width) */
    const float *values; /* (batch, hidden) */
    const float *weight; /* (hidden, width) */
    float *grad_hidden; /* (batch, hidden) */
    float *grad_weight; /* (hidden, width) */
    float *grad_bias; /* (hidden) */
    float *grad_inputs; /* (batch, width) */
    ptrdiff_t batch, width, hidden;
    int linear; /* no tanh */
    int threads;
};

struct words_scratch { /* result: bytes */
    ptrdiff_t batch, context, dim, hidden;
    enum precision precision;
    int threads;
};

struct words_forward {
    const int32_t *contexts; /* (batch, context) */
    const float *embedding; /* (V, dim) */
    const float *weight; /* (hidden, context * dim) */
    const float *bias; /* (hidden) */
    uint8_t *scratch;
    float *values; /* (batch, hidden) */
    ptrdiff_t batch, context, dim, hidden;
    enum precision precision;
    int threads;
};

struct words_backward {
    const int32_t *contexts; /* (batch, context) */
    const float *values; /* (batch, hidden) */
    const float *weight; /* (hidden, context * dim) */
    enum rule rule;
    const double *hyper; /* (6) */
    uint8_t *scratch;
    float *grad_hidden; /* (batch, hidden) */
    float *grad_weight; /* (hidden, context * dim) */
    float *grad_bias; /* (hidden) */
    float *embedding; /* (vocabulary, dim) */
    float *slots; /* (S, vocabulary, dim) */
    ptrdiff_t batch, context, dim, hidden, vocabulary;
    enum precision precision;
    int threads;
};

struct softmax_cross_entropy {
    const int32_t *targets; /* (batch) */
    const float *weights; /* (batch) */
    const float *bias; /* (vocabulary) */
    double *losses; /* (batch) */
    float *logits; /* (batch, vocabulary) */
    ptrdiff_t batch, vocabulary;
    int threads;
};

struct draw_noise { /* result: where the first drawn alias outside [0, vocabulary) stands, or -1 */
    const uint64_t *bits; /* (count) */
    const uint32_t *threshold; /* (vocabulary) */
    const int32_t *alias; /* (vocabulary) */
    int32_t *noise; /* (count) */
    ptrdiff_t count, vocabulary;
    int threads;
};

struct negative_scratch { /* result: bytes */
    ptrdiff_t batch, block, negatives, hidden;
    int threads;
};

struct negative_step {
    const float *values; /* (batch, hidden) */
    const int32_t *targets; /* (batch) */
    const float *weights; /* (batch) */
    const int32_t *noise; /* (ceil(batch / block), negatives) */
    const float *offsets; /* (vocabulary) or NULL */
    enum rule rule;
    const double *hyper; /* (6) */
    uint8_t *scratch;
    double *losses; /* (batch) */
    float *grad_hidden; /* (batch, hidden) */
    float *output_weight; /* (vocabulary, hidden) */
    float *output_bias; /* (vocabulary) */
    float *weight_slots; /* (S, vocabulary, hidden) */
    float *bias_slots; /* (S, vocabulary) */
    ptrdiff_t batch, block, negatives, hidden, vocabulary;
    int skip_target, threads;
};

/* X(kernel's name, what it returns) */
#define FASTNPLM_KERNELS(X)                                                                        \
    X(find_bad_id, ptrdiff_t)                                                                      \
    X(form_contexts, int)                                                                          \
    X(gather_rows, int)                                                                            \
    X(scatter_update, int)                                                                         \
    X(dense_update, int)                                                                           \
    X(bias_tanh, int)                                                                              \
    X(tanh_backward, int)                                                                          \
    X(dropout, int)                                                                                \
    X(layer_forward, int)                                                                          \
    X(layer_backward, int)                                                                         \
    X(words_scratch, size_t)                                                                       \
    X(words_forward, int)                                                                          \
    X(words_backward, int)                                                                         \
    X(softmax_cross_entropy, int)                                                                  \
    X(draw_noise, ptrdiff_t)                                                                       \
    X(negative_scratch, size_t)                                                                    \
    X(negative_step, int)

#define FASTNPLM_POINTER(name, result) result (*name)(const struct name *);
struct kernels {
    FASTNPLM_KERNELS(FASTNPLM_POINTER)
    SOFTMAX_KERNELS(FASTNPLM_POINTER)
};

/* A source compiled for a target sees that target's kernels. */
#define FASTNPLM_DECLARE(name, result) result FASTNPLM_NAME(name)(const struct name *);
FASTNPLM_KERNELS(FASTNPLM_DECLARE)
#endif
