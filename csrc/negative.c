/* One step of a sampled output layer: work for the words drawn, none for the vocabulary. */
#include "negative.h"

#include "packed.h"
#include "rows.h"
#include "threads.h"

INLINE uintptr_t take(uintptr_t *at, size_t bytes) {
    uintptr_t piece = *at;
    *at += (bytes + 63) & ~(uintptr_t)63;
    return piece;
}

INLINE int is_shared(ptrdiff_t block, ptrdiff_t negatives) {
    return block >= LEAST_SHARED && negatives <= MOST_WORDS_AN_EXAMPLE * block;
}

/* Lays the workspace out from address at and returns the address where it ends. */
static uintptr_t lay_out(struct negative_workspace *w, uintptr_t at,
                         const struct negative_scratch *size) {
    const ptrdiff_t batch = size->batch, negatives = size->negatives;
    const ptrdiff_t block = size->block < 1 ? 1 : size->block < batch ? size->block : batch;
    *w = (struct negative_workspace){0};
    w->hiddens = packed_columns(size->hidden);
    w->own_size = w->hiddens;
    w->items = batch * (1 + negatives);
    if (is_shared(block, negatives)) {
        w->gangs_a_block = (block + GANG - 1) / GANG;
        w->stretch = w->gangs_a_block * GANG;
        w->blocks = (batch + block - 1) / block;
        w->gangs = w->gangs_a_block * (batch / block) + (batch % block + GANG - 1) / GANG;
        w->items = batch + w->blocks * negatives;
        w->own_size += FASTNPLM_NAME(negative_gang_floats)(negatives, size->hidden);
    }
    const size_t words = (size_t)(w->blocks * negatives);
    const size_t parts = (size_t)(w->gangs * negatives);
    at = (at + 63) & ~(uintptr_t)63;
    w->words = (void *)take(&at, (size_t)w->items * sizeof(int32_t));
    w->grads = (void *)take(&at, (size_t)w->items * sizeof(float));
    w->noise_grads = (void *)take(&at, words * (size_t)w->stretch * sizeof(float));
    w->values = (void *)take(&at, (size_t)(w->blocks * w->stretch * w->hiddens) * sizeof(float));
    w->noise_rows = (void *)take(&at, words * (size_t)w->hiddens * sizeof(float));
    w->noise_biases = (void *)take(&at, parts * sizeof(float));
    w->counts = (void *)take(&at, parts);
    w->grouping = (void *)take(&at, groups_bytes(w->items));
    w->summed = (void *)take(&at, (size_t)w->items * sizeof(int32_t));
    w->own = (void *)take(&at, (size_t)(w->own_size * size->threads) * sizeof(float));
    return at;
}

size_t FASTNPLM_NAME(negative_scratch)(const struct negative_scratch *call) {
    struct negative_workspace w;
    return lay_out(&w, 0, call) + 64;
}

/* A row's gradients, a few of them at a time; sum gathers them in the items' order. */
struct gathering {
    const float *rows[16];
    float scales[16], *sum;
    ptrdiff_t count, hidden;
    int begun;
};

INLINE void gather_flush(struct gathering *g) {
    row_combine(g->sum, !g->begun, g->count, g->scales, g->rows, g->hidden);
    g->begun = 1;
    g->count = 0;
}

INLINE void gather_add(struct gathering *g, float scale, const float *row) {
    g->scales[g->count] = scale;
    g->rows[g->count] = row;
    if (++g->count == 16)
        gather_flush(g);
}

/* The gradient of the bias of item, a word of shared noise: its gangs' in their order. */
static float noise_bias(const struct negative_step *call, const struct negative_workspace *w,
                        ptrdiff_t item) {
    const ptrdiff_t negatives = call->negatives;
    float sum = 0.0f;
    for (ptrdiff_t i = 0; i < w->gangs_a_block; i++) {
        const ptrdiff_t gang = item / negatives * w->gangs_a_block + i;
        if (gang < w->gangs)
            sum += w->noise_biases[gang * negatives + item % negatives];
    }
    return sum;
}

/* The words of the pairs that count, into the items. */
static void name_pairs(const struct negative_step *call, const struct negative_workspace *w) {
    int32_t *word = w->words;
    for (ptrdiff_t b = 0; b < call->batch; b++) {
        const int32_t *noise = call->noise + b / call->block * call->negatives;
        const int32_t target = call->targets[b];
        const int counts = call->weights[b] != 0.0f;
        *word++ = counts ? target : -1;
        for (ptrdiff_t k = 0; k < call->negatives; k++)
            *word++ = !counts || (call->skip_target && noise[k] == target) ? -1 : noise[k];
    }
}

/* The words of shared noise that count in any gang, into the items. */
static void name_noise(const struct negative_step *call, const struct negative_workspace *w) {
    const ptrdiff_t negatives = call->negatives, items = w->blocks * negatives;
    for (ptrdiff_t item = 0; item < items; item++)
        w->words[call->batch + item] = -1;
    for (ptrdiff_t gang = 0; gang < w->gangs; gang++)
        for (ptrdiff_t k = 0; k < negatives; k++)
            if (w->counts[gang * negatives + k]) {
                const ptrdiff_t item = gang / w->gangs_a_block * negatives + k;
                w->words[call->batch + item] = call->noise[item];
            }
}

/* The groups left for the second pass, into summed; returns how many. */
static ptrdiff_t list_summed(const struct negative_workspace *w, const struct groups *groups) {
    ptrdiff_t count = 0;
    for (ptrdiff_t g = 0; g < groups->count; g++) {
        w->summed[count] = (int32_t)g;
        count += w->gangs || !is_lone(groups, g);
    }
    return count;
}

/* Sum the gradients of one word's items, in sum, and take the word's step. */
static void sum_and_step(const struct negative_step *call, const struct negative_workspace *w,
                         const struct groups *groups, ptrdiff_t group, float *sum) {
    const ptrdiff_t hidden = call->hidden, pairs = 1 + call->negatives;
    struct gathering g;
    float bias = 0.0f;
    g.sum = sum;
    g.hidden = hidden;
    g.count = g.begun = 0;
    for (ptrdiff_t m = groups->start[group]; m < groups->start[group + 1]; m++) {
        const ptrdiff_t item = groups->members[m], noise = item - call->batch;
        if (w->gangs && noise >= 0) {
            gather_add(&g, 1.0f, w->noise_rows + noise * w->hiddens);
            bias += noise_bias(call, w, noise);
        } else {
            const ptrdiff_t b = w->gangs ? item : item / pairs;
            gather_add(&g, w->grads[item], call->values + b * hidden);
            bias += w->grads[item];
        }
    }
    const ptrdiff_t word = groups->distinct[group];
    if (!g.begun && g.count == 1) { /* what is summed is one row: no copy of it */
        step_word(call, w, word, 1, g.scales[0], g.rows[0], bias);
        return;
    }
    if (g.count)
        gather_flush(&g);
    step_word(call, w, word, 0, 1.0f, sum, bias);
}

int FASTNPLM_NAME(negative_step)(const struct negative_step *call) {
    struct negative_workspace w;
    const struct negative_scratch size = {call->batch, call->block, call->negatives, call->hidden,
                                          call->threads};
    lay_out(&w, (uintptr_t)call->scratch, &size);
    w.row_rule = rule_values(call->hyper, 1);
    w.bias_rule = rule_values(call->hyper, 0);
    const ptrdiff_t pairs = call->batch * (1 + call->negatives), hidden = call->hidden;
    const int threads = threads_for(pairs * hidden / 2, call->threads);
    struct groups groups = {0};
    ptrdiff_t summed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *own = w.own + thread_number() * w.own_size;
        if (w.gangs) {
#pragma omp for schedule(dynamic)
            for (ptrdiff_t gang = 0; gang < w.gangs; gang++)
                FASTNPLM_NAME(negative_gang)(call, &w, gang, own + w.hiddens);
            const ptrdiff_t parts = row_blocks(call->negatives);
#pragma omp for schedule(dynamic) nowait
            for (ptrdiff_t part = 0; part < w.blocks * parts; part++)
                FASTNPLM_NAME(negative_rows)(call, &w, part / parts, part % parts);
        }
#pragma omp single
        {
            (w.gangs ? name_noise : name_pairs)(call, &w);
            groups = group_ids(w.words, 1, w.items, w.grouping);
            summed = list_summed(&w, &groups);
        }
        if (!w.gangs) {
#pragma omp for schedule(dynamic, 16)
            for (ptrdiff_t b = 0; b < call->batch; b++)
                FASTNPLM_NAME(negative_example)(call, &w, &groups, b);
        }
#pragma omp for schedule(dynamic, 32)
        for (ptrdiff_t i = 0; i < summed; i++) {
            if (i + ROWS_AHEAD < summed) {
                const ptrdiff_t word = groups.distinct[w.summed[i + ROWS_AHEAD]];
                row_prefetch(call->output_weight + word * hidden, hidden);
                __builtin_prefetch(call->output_bias + word, 1);
            }
            sum_and_step(call, &w, &groups, w.summed[i], own);
        }
    }
    return 0;
}
