/* One step of a sampled output layer: work for the words drawn, none for the vocabulary. */
#include "negative.h"

#include "groups.h"
#include "packed.h"
#include "rows.h"
#include "threads.h"

INLINE uintptr_t take(uintptr_t *at, size_t bytes) {
    uintptr_t piece = *at;
    *at += (bytes + 63) & ~(uintptr_t)63;
    return piece;
}

INLINE int is_shared(ptrdiff_t block) { return block >= LEAST_SHARED; }

/* Lays the workspace out from address at and returns the address where it ends. */
static uintptr_t lay_out(struct negative_workspace *w, uintptr_t at,
                         const struct negative_scratch *size) {
    const ptrdiff_t batch = size->batch, negatives = size->negatives;
    const ptrdiff_t block = size->block < 1 ? 1 : size->block < batch ? size->block : batch;
    size_t grads;
    w->own_size = packed_columns(size->hidden);
    w->gangs_a_block = (block + GANG - 1) / GANG;
    w->gangs = 0;
    if (is_shared(block)) {
        w->gangs = w->gangs_a_block * (batch / block);
        w->gangs += (batch % block + GANG - 1) / GANG;
        w->items = batch + w->gangs * negatives;
        grads = (size_t)(batch + w->gangs * negatives * GANG);
        w->own_size += FASTNPLM_NAME(negative_gang_floats)(negatives, size->hidden);
    } else {
        w->items = batch * (1 + negatives);
        grads = (size_t)w->items;
    }
    at = (at + 63) & ~(uintptr_t)63;
    w->words = (void *)take(&at, (size_t)w->items * sizeof(int32_t));
    w->grads = (void *)take(&at, grads * sizeof(float));
    w->grouping = (void *)take(&at, groups_bytes(w->items));
    w->own = (void *)take(&at, (size_t)(w->own_size * size->threads) * sizeof(float));
    return at;
}

size_t FASTNPLM_NAME(negative_scratch)(const struct negative_scratch *call) {
    struct negative_workspace w;
    return lay_out(&w, 0, call) + 64;
}

/* A row's gradients, a few of them at a time; sum and bias gather them in the items' order. */
struct gathering {
    const float *rows[16];
    float scales[16], bias, *sum;
    ptrdiff_t count, hidden;
    int begun;
};

INLINE void gather_flush(struct gathering *g) {
    row_combine(g->sum, !g->begun, g->count, g->scales, g->rows, g->hidden);
    g->begun = 1;
    g->count = 0;
}

INLINE void gather_add(struct gathering *g, float scale, const float *values) {
    g->scales[g->count] = scale;
    g->rows[g->count] = values;
    g->bias += scale;
    if (++g->count == 16)
        gather_flush(g);
}

/* Sum the gradients of one word's items and take the word's step. */
static void step_word(const struct negative_step *call, const struct negative_workspace *w,
                      const struct groups *groups, ptrdiff_t group, float *sum) {
    const ptrdiff_t hidden = call->hidden, pairs = 1 + call->negatives;
    struct gathering g = {.sum = sum, .hidden = hidden};
    for (ptrdiff_t m = groups->start[group]; m < groups->start[group + 1]; m++) {
        const ptrdiff_t item = groups->members[m];
        if (!w->gangs || item < call->batch) {
            const ptrdiff_t b = w->gangs ? item : item / pairs;
            gather_add(&g, w->grads[item], call->values + b * hidden);
            continue;
        }
        const struct gang gang = gang_of(call, w, (item - call->batch) / call->negatives);
        const float *grads = w->grads + call->batch + (item - call->batch) * GANG;
        for (ptrdiff_t j = 0; j < gang.count; j++)
            if (grads[j] != 0.0f) /* the ignored are 0 */
                gather_add(&g, grads[j], call->values + (gang.first + j) * hidden);
    }
    if (g.count || !g.begun)
        gather_flush(&g);
    const ptrdiff_t word = groups->distinct[group];
    const struct rule_values values = rule_values(call->hyper, 1);
    const struct rule_values bias_values = rule_values(call->hyper, 0);
    float *slot = call->weight_slots + word * hidden;
    float *bias_slot = call->bias_slots + word;
    apply_rule(call->rule, &values, hidden, sum, call->output_weight + word * hidden, slot,
               slot + call->vocabulary * hidden);
    apply_rule_once(call->rule, &bias_values, g.bias, call->output_bias + word, bias_slot,
                    bias_slot + call->vocabulary);
}

int FASTNPLM_NAME(negative_step)(const struct negative_step *call) {
    struct negative_workspace w;
    const struct negative_scratch size = {call->batch, call->block, call->negatives, call->hidden,
                                          call->threads};
    lay_out(&w, (uintptr_t)call->scratch, &size);
    const ptrdiff_t pairs = call->batch * (1 + call->negatives), hidden = call->hidden;
    const int threads = threads_for(pairs * hidden / 2, call->threads);
    struct groups groups = {0};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *own = w.own + thread_number() * w.own_size;
        if (w.gangs) {
#pragma omp for schedule(dynamic)
            for (ptrdiff_t gang = 0; gang < w.gangs; gang++)
                FASTNPLM_NAME(negative_gang)(call, &w, gang, own + packed_columns(hidden));
        } else {
#pragma omp for schedule(dynamic, 16)
            for (ptrdiff_t b = 0; b < call->batch; b++)
                FASTNPLM_NAME(negative_example)(call, &w, b);
        }
#pragma omp single
        groups = group_ids(w.words, 1, w.items, w.grouping);
#pragma omp for schedule(dynamic, 32)
        for (ptrdiff_t g = 0; g < groups.count; g++) {
            if (g + ROWS_AHEAD < groups.count) {
                const ptrdiff_t word = groups.distinct[g + ROWS_AHEAD];
                row_prefetch(call->output_weight + word * hidden, hidden);
                __builtin_prefetch(call->output_bias + word, 1);
            }
            step_word(call, &w, &groups, g, own);
        }
    }
    return 0;
}
