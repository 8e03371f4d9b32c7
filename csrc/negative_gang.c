/* Noise shared by a block of examples: its rows are gathered once for up to GANG examples, and
 * scores and gradients are matrix products.
 *
 *     scores (K, examples)      = rows (K, H) * hidden transposed
 *     grad_hidden (examples, H) = gradients of the scores transposed * rows
 */
#include "negative.h"

#include "packed.h"
#include "rows.h"

/* What a gang needs beside the shared workspace, all of one thread. */
struct gang_memory {
    float *rows;          /* (K, H) */
    float *packed_rows;   /* rows, packed for the second product */
    float *packed_values; /* hidden of the examples, packed for the first */
    float *values;        /* (GANG, H) copy of hidden with ignored examples at 0 */
};

static struct gang_memory gang_memory(float *own, ptrdiff_t negatives, ptrdiff_t hidden,
                                      float **end) {
    struct gang_memory m;
    m.rows = own;
    m.packed_rows = m.rows + negatives * packed_columns(hidden);
    m.packed_values = m.packed_rows + negatives * packed_columns(hidden);
    m.values = m.packed_values + hidden * GANG;
    *end = m.values + GANG * packed_columns(hidden);
    return m;
}

ptrdiff_t FASTNPLM_NAME(negative_gang_floats)(ptrdiff_t negatives, ptrdiff_t hidden) {
    return 2 * negatives * packed_columns(hidden) + hidden * GANG + GANG * packed_columns(hidden);
}

/* Turns the scores of noise word k (GANG of them, some beyond the gang) into gradients. Returns
 * whether any of its pairs counts. */
static int finish_scores(const struct negative_step *call, const struct gang *g, int32_t word,
                         float *scores, double *losses) {
    float bias = call->output_bias[word];
    int counts = 0;
    if (call->offsets)
        bias -= call->offsets[word];
    for (ptrdiff_t j = 0; j < g->count; j += LANES) {
        const ptrdiff_t left = g->count - j < LANES ? g->count - j : LANES;
        const vector score = vector_load(scores + j) + bias;
        float grad[LANES], loss[LANES];
        vector_store(grad, noise_grad(score));
        vector_store(loss, noise_loss(score));
        for (ptrdiff_t lane = 0; lane < left; lane++) {
            const ptrdiff_t b = g->first + j + lane;
            const int counted = call->weights[b] != 0.0f &&
                                !(call->skip_target && word == call->targets[b]);
            counts |= counted;
            scores[j + lane] = counted ? grad[lane] * call->weights[b] : 0.0f;
            losses[j + lane] += counted ? (double)loss[lane] : 0.0;
        }
        for (ptrdiff_t lane = left; lane < LANES; lane++)
            scores[j + lane] = 0.0f;
    }
    return counts;
}

/* The example's own pair, that of its target: added to what the noise gave. */
static void add_target(const struct negative_step *call, const struct negative_workspace *w,
                       ptrdiff_t b, int_vector last, double loss) {
    const ptrdiff_t hidden = call->hidden;
    const int32_t word = call->targets[b];
    const float *row = call->output_weight + word * hidden;
    w->words[b] = -1;
    call->losses[b] = 0.0;
    if (call->weights[b] == 0.0f)
        return;
    float score = row_dot(call->values + b * hidden, row, hidden, last) + call->output_bias[word];
    if (call->offsets)
        score -= call->offsets[word];
    w->words[b] = word;
    w->grads[b] = -noise_grad(vector_splat(-score))[0] * call->weights[b];
    call->losses[b] = loss + (double)noise_loss(vector_splat(-score))[0];
    row_add_scaled(call->grad_hidden + b * hidden, w->grads[b], row, hidden);
}

void FASTNPLM_NAME(negative_gang)(const struct negative_step *call,
                                  const struct negative_workspace *w, ptrdiff_t gang, float *own) {
    const ptrdiff_t hidden = call->hidden, negatives = call->negatives;
    const struct gang g = gang_of(call, w, gang);
    const int32_t *noise = call->noise + g.block * negatives;
    float *end, *grads = w->grads + call->batch + gang * negatives * GANG;
    const struct gang_memory m = gang_memory(own, negatives, hidden, &end);
    double losses[GANG] = {0};

    for (ptrdiff_t k = 0; k < negatives; k++) {
        if (k + ROWS_AHEAD < negatives)
            row_prefetch(call->output_weight + noise[k + ROWS_AHEAD] * hidden, hidden);
        row_copy(m.rows + k * hidden, call->output_weight + noise[k] * hidden, hidden);
    }
    for (ptrdiff_t j = 0; j < g.count; j++) { /* an ignored example may hold anything, even NaN */
        const ptrdiff_t b = g.first + j;
        if (call->weights[b] == 0.0f)
            memset(m.values + j * hidden, 0, (size_t)hidden * sizeof(float));
        else
            row_copy(m.values + j * hidden, call->values + b * hidden, hidden);
        __builtin_prefetch(call->output_bias + call->targets[b]);
    }
    for (ptrdiff_t panel = 0; panel < panel_count(g.count); panel++)
        FASTNPLM_NAME(pack_transposed)(m.values, hidden, hidden, g.count, panel, m.packed_values);
    for (ptrdiff_t panel = 0; panel < panel_count(hidden); panel++)
        FASTNPLM_NAME(pack_columns)(m.rows, hidden, NULL, negatives, hidden, panel, m.packed_rows);
    const struct product of_scores = {
        .rows = negatives,
        .columns = packed_columns(g.count),
        .depth = hidden,
        .a = m.rows,
        .a_row = hidden,
        .a_depth = 1,
        .packed = m.packed_values,
        .out = grads,
        .out_row = GANG,
    };
    for (ptrdiff_t block = 0; block < row_blocks(negatives); block++)
        FASTNPLM_NAME(packed_block)(&of_scores, block);
    for (ptrdiff_t k = 0; k < negatives; k++) {
        int counts = finish_scores(call, &g, noise[k], grads + k * GANG, losses);
        w->words[call->batch + gang * negatives + k] = counts ? noise[k] : -1;
    }
    const struct product of_hidden = {
        .rows = g.count,
        .columns = hidden,
        .depth = negatives,
        .a = grads,
        .a_row = 1,
        .a_depth = GANG,
        .packed = m.packed_rows,
        .out = call->grad_hidden + g.first * hidden,
        .out_row = hidden,
    };
    for (ptrdiff_t block = 0; block < row_blocks(g.count); block++)
        FASTNPLM_NAME(packed_block)(&of_hidden, block);
    const int_vector last = row_last_lanes(hidden);
    for (ptrdiff_t j = 0; j < g.count; j++) {
        if (j + 4 < g.count)
            row_prefetch(call->output_weight + call->targets[g.first + j + 4] * hidden, hidden);
        add_target(call, w, g.first + j, last, losses[j]);
    }
}
