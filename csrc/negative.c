/* One step of a sampled output layer: work for the words drawn, none for the vocabulary. */
#include "target.h"

#include <math.h>

#include "groups.h"
#include "kernels.h"
#include "rows.h"
#include "threads.h"

INLINE uintptr_t take(uintptr_t *at, size_t bytes) {
    uintptr_t piece = *at;
    *at += (bytes + 63) & ~(uintptr_t)63;
    return piece;
}

struct workspace {
    int32_t *words;     /* (batch, 1 + K) target and noise; -1 where a pair does not count */
    float *grads;       /* (batch, 1 + K) gradient of each score */
    uint8_t *grouping;  /* groups_bytes(batch * (1 + K)) */
    float *sums;        /* (threads, hidden) */
    ptrdiff_t sum_step;
};

static uintptr_t lay_out(struct workspace *w, uintptr_t at, ptrdiff_t batch, ptrdiff_t negatives,
                         ptrdiff_t hidden, int threads) {
    size_t pairs = (size_t)(batch * (1 + negatives));
    at = (at + 63) & ~(uintptr_t)63;
    w->sum_step = (hidden + 15) / 16 * 16;
    w->words = (void *)take(&at, pairs * sizeof(int32_t));
    w->grads = (void *)take(&at, pairs * sizeof(float));
    w->grouping = (void *)take(&at, groups_bytes((ptrdiff_t)pairs));
    w->sums = (void *)take(&at, (size_t)(w->sum_step * threads) * sizeof(float));
    return at;
}

size_t FASTNPLM_NAME(negative_scratch)(const struct negative_scratch *call) {
    struct workspace w;
    return lay_out(&w, 0, call->batch, call->negatives, call->hidden, call->threads) + 64;
}

/* log(1 + e^x) */
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static float sigmoid(float x) {
    float small = expf(-fabsf(x));
    return x < 0 ? small / (1 + small) : 1 / (1 + small);
}

static void score_example(const struct negative_step *call, const struct workspace *w,
                          ptrdiff_t b) {
    ptrdiff_t hidden = call->hidden, count = 1 + call->negatives;
    int32_t *words = w->words + b * count;
    float *grads = w->grads + b * count;
    const int32_t *noise = call->noise + b / call->block * call->negatives;
    const float *values = call->values + b * hidden;
    float *grad_hidden = call->grad_hidden + b * hidden;
    double loss = 0;
    memset(grad_hidden, 0, (size_t)hidden * sizeof(float));
    for (ptrdiff_t k = 0; k < count; k++) {
        int32_t word = k == 0 ? call->targets[b] : noise[k - 1];
        words[k] = -1;
        if (call->weights[b] == 0.0f || (k > 0 && call->skip_target && word == call->targets[b]))
            continue;
        words[k] = word;
        const float *row = call->output_weight + word * hidden;
        float score = row_dot(values, row, hidden) + call->output_bias[word];
        if (call->offsets)
            score -= call->offsets[word];
        loss += softplus(k == 0 ? -score : score);
        grads[k] = (sigmoid(score) - (k == 0 ? 1.0f : 0.0f)) * call->weights[b];
        row_add_scaled(grad_hidden, grads[k], row, hidden);
    }
    call->losses[b] = loss;
}

static void step_word(const struct negative_step *call, const struct workspace *w,
                      const struct groups *groups, ptrdiff_t g, float *sum) {
    ptrdiff_t hidden = call->hidden, count = 1 + call->negatives;
    float bias_grad = 0;
    memset(sum, 0, (size_t)hidden * sizeof(float));
    for (ptrdiff_t m = groups->start[g]; m < groups->start[g + 1]; m++) {
        ptrdiff_t pair = groups->members[m];
        row_add_scaled(sum, w->grads[pair], call->values + pair / count * hidden, hidden);
        bias_grad += w->grads[pair];
    }
    ptrdiff_t word = groups->distinct[g];
    const struct rule_values values = rule_values(call->hyper, 1);
    const struct rule_values bias_values = rule_values(call->hyper, 0);
    float *slot = call->weight_slots + word * hidden;
    float *bias_slot = call->bias_slots + word;
    apply_rule(call->rule, &values, hidden, sum, call->output_weight + word * hidden, slot,
               slot + call->vocabulary * hidden);
    apply_rule(call->rule, &bias_values, 1, &bias_grad, call->output_bias + word, bias_slot,
               bias_slot + call->vocabulary);
}

int FASTNPLM_NAME(negative_step)(const struct negative_step *call) {
    struct workspace w;
    ptrdiff_t pairs = call->batch * (1 + call->negatives);
    lay_out(&w, (uintptr_t)call->scratch, call->batch, call->negatives, call->hidden,
            call->threads);
    int threads = threads_for(pairs * call->hidden, call->threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t b = 0; b < call->batch; b++)
        score_example(call, &w, b);
    struct groups groups = group_ids(w.words, 1, pairs, w.grouping);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *sum = w.sums + thread_number() * w.sum_step;
#pragma omp for schedule(static)
        for (ptrdiff_t g = 0; g < groups.count; g++)
            step_word(call, &w, &groups, g, sum);
    }
    return 0;
}
