/* Pass 2 of the training step: one tile's gradient, and the optimiser's rule on it.
 *
 * gradient (rows, H) = exponentials (rows, B) . (scale * hidden) (B, H), where scale_b = weight_b *
 * 2^(reference_b - normalizer_b) turns exponentials into weighted probabilities. It is folded into
 * the hidden vectors, which are packed again only when a reference has moved: no second pass over
 * B x V, and never a V x H gradient.
 */
#ifndef FASTNPLM_SOFTMAX_UPDATE_H
#define FASTNPLM_SOFTMAX_UPDATE_H

#include "softmax_layout.h"

#define BLOCK_FLOATS (GRADIENT_ROWS * PANEL)

/* Examples whose scaled hidden vectors are used together: they should not outgrow the second-level
 * cache by much. */
#define SLAB_PANELS (1024 / PANEL)

/* What a thread needs from tile to tile. */
struct tile_update {
    const struct softmax_step *step;
    const struct softmax_layout *l;
    float *scores;     /* (TILE_ROWS, PANEL) */
    float *scale;      /* (padded_batch) */
    float *scaled;     /* packed: see pack_scaled */
    float *tile_grad;  /* (TILE_ROWS, padded_columns) */
    float *tile_again; /* (tile_floats) exponentials that were not kept */
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
    u.scaled = (float *)(own + l->scaled);
    u.tile_grad = (float *)(own + l->tile_grad);
    u.tile_again = (float *)(own + l->tile_scores);
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

/* scaled = scale * hidden as (slab, column group, example, vectors of the group), zero where batch
 * or columns end and where the weight is 0. */
static void pack_scaled(struct tile_update *u, const float *references) {
    const struct softmax_step *step = u->step;
    const struct softmax_layout *l = u->l;
    const double *normalizer = (double *)((char *)step->scratch + l->normalizer);
    for (ptrdiff_t b = 0; b < l->padded_batch; b++) {
        const float w = b < step->batch ? step->weights[b] : 0.0f;
        u->scale[b] = w == 0.0f ? 0.0f : (float)(w * exp2(references[b] - normalizer[b]));
    }
    float *to = u->scaled;
    for (ptrdiff_t first = 0; first < l->padded_batch; first += SLAB_PANELS * PANEL) {
        ptrdiff_t end = first + SLAB_PANELS * PANEL;
        end = end < l->padded_batch ? end : l->padded_batch;
        for (ptrdiff_t v = 0; v < l->column_vectors;) {
            const ptrdiff_t vectors = column_group(l->column_vectors - v);
            const ptrdiff_t k = v * LANES, width = vectors * LANES;
            const ptrdiff_t count = step->hidden_size - k < width ? step->hidden_size - k : width;
            for (ptrdiff_t b = first; b < end; b++, to += width) {
                memset(to, 0, (size_t)width * sizeof(float));
                if (u->scale[b] != 0.0f)
                    for (ptrdiff_t i = 0; i < count; i++)
                        to[i] = step->hidden[b * step->hidden_size + k + i] * u->scale[b];
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
    for (ptrdiff_t panel = 0; panel < u->l->panels; panel++) {
        vector highest[2] = {{0}, {0}}, sums[2];
        const vector reference[2] = {vector_load(references + panel * PANEL),
                                     vector_load(references + panel * PANEL + LANES)};
        score_tile(rows, H, step->output_weight + first * H, step->output_bias + first,
                   (float)LOG2_E, packed + panel * PANEL * H, u->scores, highest);
        exponentials(rows, reference, u->scores, u->tile_again + panel * BLOCK_FLOATS,
                     u->l->panels * BLOCK_FLOATS, sums);
    }
}

/* bias_grad (blocks * GRADIENT_ROWS) = exponentials . scale. Reading the tile in order, it also
 * brings it into the second-level cache for the product. */
static void bias_gradient(const struct tile_update *u, ptrdiff_t blocks, const float *tile,
                          float *bias_grad) {
    for (ptrdiff_t block = 0; block < blocks; block++, bias_grad += GRADIENT_ROWS) {
        vector sums[GRADIENT_ROWS];
        UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) { sums[r] = (vector){0}; }
        for (ptrdiff_t b = 0; b < u->l->padded_batch; b += PANEL, tile += BLOCK_FLOATS) {
            const vector s0 = vector_load(u->scale + b), s1 = vector_load(u->scale + b + LANES);
            UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) {
                sums[r] += vector_load(tile + r * PANEL) * s0;
                sums[r] += vector_load(tile + r * PANEL + LANES) * s1;
            }
        }
        UNROLL for (int r = 0; r < GRADIENT_ROWS; r++) { bias_grad[r] = vector_sum(sums[r]); }
    }
}

/* tile_grad = exponentials . scaled, over slabs of examples. */
static void weight_gradient(const struct tile_update *u, ptrdiff_t blocks, const float *tile) {
    const struct softmax_layout *l = u->l;
    const float *scaled = u->scaled;
    for (ptrdiff_t panel = 0; panel < l->panels; panel += SLAB_PANELS) {
        const ptrdiff_t panels = l->panels - panel < SLAB_PANELS ? l->panels - panel : SLAB_PANELS;
        for (ptrdiff_t block = 0; block < blocks; block++) {
            const float *a = tile + (block * l->panels + panel) * BLOCK_FLOATS;
            const float *b = scaled;
            float *out = u->tile_grad + block * GRADIENT_ROWS * l->padded_columns;
            for (ptrdiff_t v = 0; v < l->column_vectors;) {
                const ptrdiff_t vectors = column_group(l->column_vectors - v);
                const int begin = panel == 0;
                if (vectors == 3)
                    product_of_blocks(3, PANEL, begin, panels, a, b, out, l->padded_columns);
                else if (vectors == 2)
                    product_of_blocks(2, PANEL, begin, panels, a, b, out, l->padded_columns);
                else
                    product_of_blocks(1, PANEL, begin, panels, a, b, out, l->padded_columns);
                b += panels * PANEL * vectors * LANES;
                out += vectors * LANES;
                v += vectors;
            }
        }
        scaled += panels * PANEL * l->padded_columns;
    }
}

static void update_tile(struct tile_update *u, ptrdiff_t tile_number) {
    const struct softmax_step *step = u->step;
    const struct softmax_layout *l = u->l;
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size, V = step->vocabulary;
    const ptrdiff_t first = tile_number * TILE_ROWS;
    const ptrdiff_t rows = V - first < TILE_ROWS ? V - first : TILE_ROWS;
    const ptrdiff_t blocks = (rows + GRADIENT_ROWS - 1) / GRADIENT_ROWS;
    const float *references = (float *)(scratch + l->references) + tile_number * l->padded_batch;

    const float *tile = u->tile_again;
    const ptrdiff_t kept_tile = tile_number - (l->tiles - l->kept_tiles);
    if (kept_tile >= 0)
        tile = (float *)(scratch + l->kept) + kept_tile * l->tile_floats;
    else
        compute_again(u, tile_number, rows, references);
    if (!u->packed_for ||
        memcmp(u->packed_for, references, (size_t)l->padded_batch * sizeof(float)) != 0)
        pack_scaled(u, references);

    float bias_grad[TILE_ROWS];
    bias_gradient(u, blocks, tile, bias_grad);
    weight_gradient(u, blocks, tile);

    /* the one-hot part, before the rule: duplicates are summed, then one step is taken */
    const int32_t *order = (int32_t *)(scratch + l->order);
    const int32_t *starts = (int32_t *)(scratch + l->starts);
    for (int32_t i = starts[tile_number]; i < starts[tile_number + 1]; i++) {
        const ptrdiff_t b = order[i], row = step->targets[b] - first;
        const float w = step->weights[b];
        float *grad = u->tile_grad + row * l->padded_columns;
        for (ptrdiff_t k = 0; k < H; k++)
            grad[k] -= step->hidden[b * H + k] * w;
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
