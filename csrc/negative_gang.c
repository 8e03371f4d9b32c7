/* Noise shared by a block of examples: its rows are gathered once for up to GANG examples, and
 * scores and gradients are matrix products.
 *
 *     scores (K, examples)      = rows (K, H) * hidden transposed
 *     grad_hidden (examples, H) = gradients of the scores transposed * rows
 *     gradient of rows (K, H)   = gradients of the scores * hidden, over the whole block
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

/* Turns the scores of a noise word (one for each of the gang, and of what fills up its last vector)
 * into gradients. weights and targets are the gang's, filled up likewise, with weight 0. */
static void finish_scores(const struct negative_step *call, ptrdiff_t count, int32_t word,
                          const float *weights, const int32_t *targets, float *scores,
                          double *losses, float *bias_grad, uint8_t *counts) {
    float bias = call->output_bias[word];
    if (call->offsets)
        bias -= call->offsets[word];
    int_vector any = {0};
    vector sum = {0};
    for (ptrdiff_t j = 0; j < count; j += LANES) {
        const vector score = vector_load(scores + j) + bias, weight = vector_load(weights + j);
        int_vector counted = weight != 0.0f;
        if (call->skip_target) {
            int_vector target;
            memcpy(&target, targets + j, sizeof target);
            counted &= target != word;
        }
        const vector zero = {0};
        const vector grad = vector_select(counted, noise_grad(score) * weight, zero);
        const vector loss = vector_select(counted, noise_loss(score), zero);
        vector_store(scores + j, grad);
        for (int lane = 0; lane < LANES; lane++)
            losses[j + lane] += (double)loss[lane];
        any |= counted;
        sum += grad;
    }
    *bias_grad = vector_sum(sum);
    *counts = 0;
    for (int lane = 0; lane < LANES; lane++)
        *counts |= any[lane] != 0;
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
    float *end, *grads = w->noise_grads + g.block * negatives * w->stretch + g.offset;
    const struct gang_memory m = gang_memory(own, negatives, hidden, &end);
    double losses[GANG] = {0};
    float weights[GANG] = {0};
    int32_t targets[GANG] = {0};

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
        weights[j] = call->weights[b];
        targets[j] = call->targets[b];
        __builtin_prefetch(call->output_bias + targets[j]);
    }
    for (ptrdiff_t panel = 0; panel < panel_count(g.count); panel++)
        FASTNPLM_NAME(pack_transposed)(m.values, hidden, hidden, g.count, panel, m.packed_values);
    float *packed_block = w->values + g.block * w->stretch * w->hiddens;
    for (ptrdiff_t panel = 0; panel < panel_count(hidden); panel++) {
        FASTNPLM_NAME(pack_columns)(m.rows, hidden, negatives, hidden, panel, m.packed_rows);
        pack_stretch(m.values, hidden, g.offset, g.count, g.size, hidden, panel, packed_block);
    }
    const struct product of_scores = {
        .rows = negatives,
        .columns = packed_columns(g.count),
        .depth = hidden,
        .a = m.rows,
        .a_row = hidden,
        .a_depth = 1,
        .packed = m.packed_values,
        .out = grads,
        .out_row = w->stretch,
    };
    for (ptrdiff_t block = 0; block < row_blocks(negatives); block++)
        FASTNPLM_NAME(packed_block)(&of_scores, block);
    for (ptrdiff_t k = 0; k < negatives; k++)
        finish_scores(call, g.count, noise[k], weights, targets, grads + k * w->stretch, losses,
                      w->noise_biases + gang * negatives + k, w->counts + gang * negatives + k);
    const struct product of_hidden = {
        .rows = g.count,
        .columns = hidden,
        .depth = negatives,
        .a = grads,
        .a_row = 1,
        .a_depth = w->stretch,
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

void FASTNPLM_NAME(negative_rows)(const struct negative_step *call,
                                  const struct negative_workspace *w, ptrdiff_t block,
                                  ptrdiff_t part) {
    const struct gang g = gang_of(call, w, block * w->gangs_a_block);
    const struct product of_rows = {
        .rows = call->negatives,
        .columns = w->hiddens,
        .depth = g.size,
        .a = w->noise_grads + block * call->negatives * w->stretch,
        .a_row = w->stretch,
        .a_depth = 1,
        .packed = w->values + block * w->stretch * w->hiddens,
        .out = w->noise_rows + block * call->negatives * w->hiddens,
        .out_row = w->hiddens,
    };
    FASTNPLM_NAME(packed_block)(&of_rows, part);
}
