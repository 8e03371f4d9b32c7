/* Pass 2 of the training step: one tile's gradient, and the optimiser's rule on it.
 *
 * gradient (rows, H) = exponentials (rows, B) . (scale * hidden) (B, H), where scale_b = weight_b *
 * e^(reference_b - normalizer_b) turns exponentials into weighted probabilities. It is folded into
 * the hidden vectors, which are packed again only when a reference has moved: no second pass over
 * B x V, and never a V x H gradient.
 */
#ifndef FASTNPLM_SOFTMAX_UPDATE_H
#define FASTNPLM_SOFTMAX_UPDATE_H

#include "softmax_layout.h"

/* Examples whose scaled hidden vectors are used together: they should not outgrow the second-level
 * cache by much. */
#define SLAB_PANELS (1024 / PANEL)

/* What a thread needs from tile to tile. */
struct tile_update {
    const struct softmax_step *step;
    const struct softmax_layout *l;
    float *scores;     /* (TILE_ROWS, PANEL) */
    float *scale;       /* (padded_batch) */
    float *scale_apart; /* (padded_batch) the same in the order bias_gradient meets examples */
    float *scaled;     /* packed: see pack_scaled */
    float *tile_grad;  /* (TILE_ROWS, padded_columns) */
    float *tile_again; /* (tile_words) exponentials that were not kept */
    float *row_copy;   /* see tile_weights */
    const float *packed_for; /* the references that scale and scaled belong to; null: none yet */
    struct rule_values weight_rule, bias_rule;
};

static struct tile_update tile_update(const struct softmax_step *step,
                                      const struct softmax_layout *l, char *own) {
    struct tile_update u;
    u.step = step;
    u.l = l;
    u.scores = (float *)(own + l->scores);
    u.scale = (float *)(own + l->scale);
    u.scale_apart = (float *)(own + l->scale_apart);
    u.scaled = (float *)(own + l->scaled);
    u.tile_grad = (float *)(own + l->tile_grad);
    u.tile_again = (float *)(own + l->tile_again);
    u.row_copy = (float *)(own + l->rows);
    u.packed_for = NULL;
    u.weight_rule = rule_values(step->hyper, 1);
    u.bias_rule = rule_values(step->hyper, 0);
    return u;
}

/* Vectors of the next group of columns: groups of at most 3, as equal as possible. */
INLINE ptrdiff_t column_group(ptrdiff_t vectors_left) {
    const ptrdiff_t groups = (vectors_left + 2) / 3;
    return (vectors_left + groups - 1) / groups;
}

/* scale_b * hidden[b, k .. k + LANES]; zero for an example without weight, whatever it holds. */
INLINE vector scaled_vector(const struct tile_update *u, ptrdiff_t b, ptrdiff_t k) {
    const ptrdiff_t H = u->step->hidden_size;
    if (u->scale[b] == 0.0f)
        return (vector){0};
    return row_vector(u->step->hidden + b * H, k, H) * u->scale[b];
}

/* scaled = scale * hidden as (slab, column group, example, vectors of the group), zero where batch
 * or columns end and where the weight is 0. */
static void pack_scaled(struct tile_update *u, const float *references) {
    const struct softmax_step *step = u->step;
    const struct softmax_layout *l = u->l;
    const double *normalizer = (double *)((char *)step->scratch + l->normalizer);
    for (ptrdiff_t b = 0; b < l->padded_batch; b++) {
        const float w = b < step->batch ? step->weights[b] : 0.0f;
        u->scale[b] = w == 0.0f ? 0.0f : (float)(w * exp(references[b] - normalizer[b]));
    }
    for (ptrdiff_t b = 0; b < l->padded_batch; b++) {
        const ptrdiff_t lane = b % PANEL;
        const ptrdiff_t at = IN_PAIRS ? lane % 2 * LANES + lane / 2 : lane;
        u->scale_apart[b - lane + at] = u->scale[b];
    }
    float *to = u->scaled;
    for (ptrdiff_t first = 0; first < l->padded_batch; first += SLAB_PANELS * PANEL) {
        ptrdiff_t end = first + SLAB_PANELS * PANEL;
        end = end < l->padded_batch ? end : l->padded_batch;
        for (ptrdiff_t v = 0; v < l->column_vectors;) {
            const ptrdiff_t vectors = column_group(l->column_vectors - v);
            for (ptrdiff_t b = first; b < end; b += IN_PAIRS ? 2 : 1)
                for (ptrdiff_t i = v; i < v + vectors; i++, to += LANES) {
                    const vector x = scaled_vector(u, b, i * LANES);
#if IN_PAIRS
                    vector_store(to, pair_lanes(x, scaled_vector(u, b + 1, i * LANES)));
#elif BF16
                    vector_store(to, round_bf16(x));
#else
                    vector_store(to, x);
#endif
                }
            v += vectors;
        }
    }
    u->packed_for = references;
}

/* Scores and exponentials of a tile once more, the same bits as in pass 1. */
static void compute_again(struct tile_update *u, ptrdiff_t tile, ptrdiff_t rows,
                          const float *references) {
    const struct softmax_step *step = u->step;
    const ptrdiff_t H = step->hidden_size, first = tile * TILE_ROWS;
    const float *packed = (float *)((char *)step->scratch + u->l->packed);
    const struct tile_weights weights =
        tile_weights(rows, H, step->output_weight + first * H, u->row_copy, NULL);
    for (ptrdiff_t panel = 0; panel < u->l->panels; panel++) {
        vector highest[2] = {{0}, {0}}, sums[2];
        const vector reference[2] = {vector_load(references + panel * PANEL),
                                     vector_load(references + panel * PANEL + LANES)};
        score_tile(rows, WORDS(H), weights.rows, weights.rows_stride, step->output_bias + first,
                   packed + panel * PANEL * WORDS(H), u->scores, highest);
        exponentials(rows, reference, u->scores, u->tile_again + panel * BLOCK_WORDS,
                     u->l->panels * BLOCK_WORDS, sums);
    }
}

/* bias_grad (blocks * GRADIENT_ROWS) = exponentials . scale. Reading the tile in order, it also
 * brings it into the second-level cache for the product. */
static void bias_gradient(const struct tile_update *u, ptrdiff_t blocks, const float *tile,
                          float *bias_grad) {
    for (ptrdiff_t block = 0; block < blocks; block++, bias_grad += GRADIENT_ROWS) {
        vector sums[GRADIENT_ROWS];
        UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) { sums[r] = (vector){0}; }
        for (ptrdiff_t b = 0; b < u->l->padded_batch; b += PANEL, tile += BLOCK_WORDS) {
            const vector s0 = vector_load(u->scale_apart + b);
            const vector s1 = vector_load(u->scale_apart + b + LANES);
            UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) {
#if IN_PAIRS
                const vector pairs = vector_load(tile + r * WORDS(PANEL));
                const vector e0 = pair_first(pairs), e1 = pair_second(pairs);
#else
                const vector e0 = vector_load(tile + r * PANEL);
                const vector e1 = vector_load(tile + r * PANEL + LANES);
#endif
                sums[r] += e0 * s0;
                sums[r] += e1 * s1;
            }
        }
        UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) { bias_grad[r] = vector_sum(sums[r]); }
    }
}

/* tile_grad = exponentials . scaled, over slabs of examples. next_tile (the exponentials of the
 * tile that this thread probably works on next) and weight (rows, H) of this tile are fetched
 * ahead: the first group of columns fetches the one, the others the other. */
static void weight_gradient(const struct tile_update *u, ptrdiff_t blocks, const float *tile,
                            const float *next_tile, const float *weight) {
    const struct softmax_layout *l = u->l;
    const ptrdiff_t H = u->step->hidden_size;
    const float *scaled = u->scaled;
    for (ptrdiff_t panel = 0; panel < l->panels; panel += SLAB_PANELS) {
        const ptrdiff_t panels = l->panels - panel < SLAB_PANELS ? l->panels - panel : SLAB_PANELS;
        const ptrdiff_t weight_step = GRADIENT_ROWS * H / (panels * WORDS(PANEL)) + 1;
        for (ptrdiff_t block = 0; block < blocks; block++) {
            const ptrdiff_t at = (block * l->panels + panel) * BLOCK_WORDS;
            const float *a = tile + at, *b = scaled;
            const float *ahead = next_tile + at;
            ptrdiff_t ahead_step = GRADIENT_ROWS;
            float *out = u->tile_grad + block * GRADIENT_ROWS * l->padded_columns;
            for (ptrdiff_t v = 0; v < l->column_vectors;) {
                const ptrdiff_t vectors = column_group(l->column_vectors - v);
                const int begin = panel == 0;
                if (vectors == 3)
                    product_of_blocks(IN_PAIRS, 3, WORDS(PANEL), begin, panels, a, b, out,
                                      l->padded_columns, ahead, ahead_step);
                else if (vectors == 2)
                    product_of_blocks(IN_PAIRS, 2, WORDS(PANEL), begin, panels, a, b, out,
                                      l->padded_columns, ahead, ahead_step);
                else
                    product_of_blocks(IN_PAIRS, 1, WORDS(PANEL), begin, panels, a, b, out,
                                      l->padded_columns, ahead, ahead_step);
                b += panels * WORDS(PANEL) * vectors * LANES;
                out += vectors * LANES;
                v += vectors;
                ahead = weight + block * GRADIENT_ROWS * H;
                ahead_step = weight_step;
            }
        }
        scaled += panels * WORDS(PANEL) * l->padded_columns;
    }
}

static void update_tile(struct tile_update *u, ptrdiff_t tile_number) {
    const struct softmax_step *step = u->step;
    const struct softmax_layout *l = u->l;
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size, V = step->vocabulary;
    const ptrdiff_t first = tile_number * TILE_ROWS;
    const ptrdiff_t rows = tile_rows(V, tile_number);
    const ptrdiff_t blocks = (rows + GRADIENT_ROWS - 1) / GRADIENT_ROWS;
    const float *references = (float *)(scratch + l->references) + tile_number * l->padded_batch;

    const float *tile = u->tile_again;
    const ptrdiff_t kept_tile = tile_number - (l->tiles - l->kept_tiles);
    if (kept_tile >= 0)
        tile = (float *)(scratch + l->kept) + kept_tile * l->tile_words;
    else
        compute_again(u, tile_number, rows, references);
    if (!u->packed_for ||
        memcmp(u->packed_for, references, (size_t)l->padded_batch * sizeof(float)) != 0)
        pack_scaled(u, references);

    float bias_grad[TILE_ROWS];
    bias_gradient(u, blocks, tile, bias_grad);
    weight_gradient(u, blocks, tile, tile - (kept_tile > 0 ? l->tile_words : 0),
                    step->output_weight + first * H);

    /* the one-hot part, before the rule: duplicates are summed, then one step is taken */
    const int32_t *order = (int32_t *)(scratch + l->order);
    const int32_t *starts = (int32_t *)(scratch + l->starts);
    for (int32_t i = starts[tile_number]; i < starts[tile_number + 1]; i++) {
        const ptrdiff_t b = order[i], row = step->targets[b] - first;
        const float w = step->weights[b];
        float *grad = u->tile_grad + row * l->padded_columns;
        for (ptrdiff_t k = 0; k < H; k++)
            grad[k] -= operand(step->hidden[b * H + k]) * w;
        bias_grad[row] -= w;
    }

    const int slots = rule_slots(step->rule);
    float *first_slot = slots > 0 ? step->weight_slots : NULL;
    float *second_slot = slots > 1 ? step->weight_slots + V * H : NULL;
    for (ptrdiff_t r = 0; r < rows; r++) {
        const ptrdiff_t at = (first + r) * H;
        apply_rule(step->rule, &u->weight_rule, H, u->tile_grad + r * l->padded_columns,
                   step->output_weight + at, first_slot ? first_slot + at : NULL,
                   second_slot ? second_slot + at : NULL);
    }
    apply_rule(step->rule, &u->bias_rule, rows, bias_grad, step->output_bias + first,
               slots > 0 ? step->bias_slots + first : NULL,
               slots > 1 ? step->bias_slots + V + first : NULL);
}

#endif
