/* The training step of the output layer: two passes over tiles of the vocabulary.
 *
 * Pass 1, threads own panels of examples: scores of a tile, exponentials, their sum, and
 * grad_hidden += exponentials . output_weight while the tile is in cache (the online softmax:
 * Milakov and Gimelshein 2018; Dao et al. 2022). The merge makes log-sum-exp and losses of it.
 * Pass 2 (softmax_update.h), threads own tiles: the tile's gradient from the kept exponentials, and
 * the optimiser's rule on it. It begins when pass 1 has ended everywhere, so that all of
 * grad_hidden comes from the weights before the step.
 */
#include "softmax_update.h"

#ifdef _OPENMP
#include <omp.h>
#endif

size_t FASTNPLM_NAME(softmax_step_scratch)(ptrdiff_t batch, ptrdiff_t hidden_size,
                                           ptrdiff_t vocabulary, int threads,
                                           enum precision precision, int keep) {
    (void)precision;
    const struct softmax_layout l = softmax_layout(batch, hidden_size, vocabulary, threads);
    const size_t kept = keep ? (size_t)(l.tiles * l.tile_floats) * sizeof(float) : 0;
    return l.kept + kept;
}

/* Tiles whose weights stay in the second-level cache while one panel after another uses them. */
static ptrdiff_t tiles_in_cache(ptrdiff_t hidden_size) {
    const ptrdiff_t tile_bytes = TILE_ROWS * hidden_size * (ptrdiff_t)sizeof(float);
    const ptrdiff_t tiles = 384 * 1024 / tile_bytes;
    return tiles < 1 ? 1 : tiles;
}

/* One tile and one panel of pass 1. gradient (H, PANEL) and sum (PANEL,) are relative to reference,
 * which they follow when it moves. */
static void forward_tile(const struct softmax_step *step, const struct softmax_layout *l,
                         ptrdiff_t tile, ptrdiff_t panel, float *scores, vector reference[2],
                         double *sum, float *gradient) {
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size, first = tile * TILE_ROWS;
    const ptrdiff_t left = step->vocabulary - first;
    const ptrdiff_t rows = left < TILE_ROWS ? left : TILE_ROWS;
    const float *weight = step->output_weight + first * H;
    const float *packed = (float *)(scratch + l->packed) + panel * PANEL * H;
    float *target_score = (float *)(scratch + l->target) + panel * PANEL;
    float *references = (float *)(scratch + l->references) + tile * l->padded_batch + panel * PANEL;

    vector highest[2] = {reference[0] + REFERENCE_SLACK, reference[1] + REFERENCE_SLACK};
    const vector limit[2] = {highest[0], highest[1]};
    score_tile(rows, H, weight, step->output_bias + first, (float)LOG2_E, packed, scores,
               highest);

    const ptrdiff_t lanes = step->batch - panel * PANEL < PANEL ? step->batch - panel * PANEL : PANEL;
    for (ptrdiff_t lane = 0; lane < lanes; lane++) {
        const ptrdiff_t row = step->targets[panel * PANEL + lane] - first;
        if (row >= 0 && row < rows)
            target_score[lane] = scores[row * PANEL + lane];
    }

    int_vector moved = (highest[0] > limit[0]) | (highest[1] > limit[1]);
    int moves = 0;
    for (int lane = 0; lane < LANES; lane++)
        moves |= moved[lane];
    if (moves) { /* lanes that stay are multiplied by 2^0 = 1 */
        vector by[2];
        for (int v = 0; v < 2; v++) {
            const vector next = vector_select(highest[v] > limit[v], highest[v], reference[v]);
            by[v] = vector_exp2_nonpositive(reference[v] - next);
            reference[v] = next;
            for (int lane = 0; lane < LANES; lane++)
                sum[v * LANES + lane] *= by[v][lane];
        }
        for (ptrdiff_t k = 0; k < H; k++)
            for (int v = 0; v < 2; v++) {
                float *at = gradient + k * PANEL + v * LANES;
                vector_store(at, vector_load(at) * by[v]);
            }
    }
    vector_store(references, reference[0]);
    vector_store(references + LANES, reference[1]);

    float *kept = NULL;
    const ptrdiff_t kept_tile = tile - (l->tiles - l->kept_tiles);
    if (kept_tile >= 0)
        kept = (float *)(scratch + l->kept) + kept_tile * l->tile_floats + panel * BLOCK_FLOATS;
    vector sums[2];
    exponentials(rows, reference, scores, kept, l->panels * BLOCK_FLOATS, sums);
    for (int v = 0; v < 2; v++)
        for (int lane = 0; lane < LANES; lane++)
            sum[v * LANES + lane] += sums[v][lane];
    accumulate_hidden(rows, H, weight, scores, gradient);
}

/* Pass 1 over panels [from, to) of one group of tiles. */
static void forward_group(const struct softmax_step *step, const struct softmax_layout *l,
                          ptrdiff_t group, ptrdiff_t from, ptrdiff_t to, char *own) {
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size;
    float *gradients = (float *)(scratch + l->gradients) + group * l->padded_batch * H;
    double *sums = (double *)(scratch + l->sums) + group * l->padded_batch;
    float *last = (float *)(scratch + l->last) + group * l->padded_batch;
    const ptrdiff_t begin = group * l->tiles_in_group;
    const ptrdiff_t end = begin + l->tiles_in_group < l->tiles ? begin + l->tiles_in_group : l->tiles;
    const ptrdiff_t together = tiles_in_cache(H);

    memset(gradients + from * PANEL * H, 0, (size_t)((to - from) * PANEL * H) * sizeof(float));
    for (ptrdiff_t b = from * PANEL; b < to * PANEL; b++) {
        sums[b] = 0.0;
        last[b] = -INFINITY;
    }
    for (ptrdiff_t tiles = begin; tiles < end; tiles += together)
        for (ptrdiff_t panel = from; panel < to; panel++) {
            float *at = last + panel * PANEL;
            vector reference[2] = {vector_load(at), vector_load(at + LANES)};
            for (ptrdiff_t tile = tiles; tile < tiles + together && tile < end; tile++)
                forward_tile(step, l, tile, panel, (float *)(own + l->scores), reference,
                             sums + panel * PANEL, gradients + panel * PANEL * H);
            vector_store(at, reference[0]);
            vector_store(at + LANES, reference[1]);
        }
}

/* One example of the merge: groups in order, whoever computed them. */
static void merge_example(const struct softmax_step *step, const struct softmax_layout *l,
                          ptrdiff_t b) {
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size;
    const double *sums = (double *)(scratch + l->sums);
    const float *last = (float *)(scratch + l->last);
    const float *gradients = (float *)(scratch + l->gradients);
    double *normalizer = (double *)(scratch + l->normalizer);
    float *grad = step->grad_hidden + b * H;
    const float example_weight = step->weights[b];

    normalizer[b] = 0.0;
    if (example_weight == 0.0f) {
        step->losses[b] = 0.0;
        memset(grad, 0, (size_t)H * sizeof(float));
        return;
    }
    double highest = -INFINITY, sum = 0.0;
    for (ptrdiff_t g = 0; g < l->groups; g++)
        highest = last[g * l->padded_batch + b] > highest ? last[g * l->padded_batch + b] : highest;
    for (ptrdiff_t g = 0; g < l->groups; g++)
        sum += sums[g * l->padded_batch + b] * exp2(last[g * l->padded_batch + b] - highest);
    normalizer[b] = highest + log2(sum);
    step->losses[b] = (normalizer[b] - ((float *)(scratch + l->target))[b]) * LN_2;

    const float *target_row = step->output_weight + step->targets[b] * H;
    for (ptrdiff_t k = 0; k < H; k++)
        grad[k] = -target_row[k] * example_weight;
    for (ptrdiff_t g = 0; g < l->groups; g++) {
        const float by =
            (float)(example_weight * exp2(last[g * l->padded_batch + b] - normalizer[b]));
        const float *from = gradients + g * l->padded_batch * H + b / PANEL * PANEL * H + b % PANEL;
        for (ptrdiff_t k = 0; k < H; k++)
            grad[k] += from[k * PANEL] * by;
    }
}

/* order: the examples with a weight, by the tile of their target and then by number; starts: where
 * each tile's begin. */
static void sort_examples(const struct softmax_step *step, const struct softmax_layout *l) {
    int32_t *order = (int32_t *)((char *)step->scratch + l->order);
    int32_t *starts = (int32_t *)((char *)step->scratch + l->starts);
    memset(starts, 0, (size_t)(l->tiles + 1) * sizeof *starts);
    for (ptrdiff_t b = 0; b < step->batch; b++)
        starts[step->targets[b] / TILE_ROWS + 1] += step->weights[b] != 0.0f;
    for (ptrdiff_t tile = 0; tile < l->tiles; tile++)
        starts[tile + 1] += starts[tile];
    for (ptrdiff_t b = step->batch - 1; b >= 0; b--) /* from the back: starts[tile + 1] is its end */
        if (step->weights[b] != 0.0f)
            order[--starts[step->targets[b] / TILE_ROWS + 1]] = (int32_t)b;
    /* each entry now holds the start of the tile before it: move them down by one */
    for (ptrdiff_t tile = 0; tile < l->tiles; tile++)
        starts[tile] = starts[tile + 1];
    ptrdiff_t used = 0;
    for (ptrdiff_t b = 0; b < step->batch; b++)
        used += step->weights[b] != 0.0f;
    starts[l->tiles] = (int32_t)used;
}

void FASTNPLM_NAME(softmax_step)(const struct softmax_step *step) {
    const ptrdiff_t B = step->batch, H = step->hidden_size;
    const int wanted = step->threads > 1 ? step->threads : 1;
    struct softmax_layout l = softmax_layout(B, H, step->vocabulary, wanted);
    const size_t room = step->scratch_bytes > l.kept ? step->scratch_bytes - l.kept : 0;
    l.kept_tiles = (ptrdiff_t)(room / ((size_t)l.tile_floats * sizeof(float) + (B == 0)));
    if (l.kept_tiles > l.tiles)
        l.kept_tiles = l.tiles;
    char *scratch = step->scratch;
    sort_examples(step, &l);

#ifdef _OPENMP
#pragma omp parallel num_threads(wanted) if (wanted > 1)
#endif
    {
#ifdef _OPENMP
        const ptrdiff_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
#else
        const ptrdiff_t thread = 0, threads = 1;
#endif
        char *own = scratch + l.threads + (size_t)thread * l.thread_bytes;
        struct tile_update update = tile_update(step, &l, own);

#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t panel = 0; panel < l.panels; panel++)
            pack_panel(step->hidden, step->weights, B, H, panel * PANEL, (float)LOG2_E,
                       (float *)(scratch + l.packed) + panel * PANEL * H);

        /* pieces in the order group, panel; each thread an equal run of them */
        const ptrdiff_t pieces = l.groups * l.panels;
        ptrdiff_t piece = pieces * thread / threads;
        const ptrdiff_t end = pieces * (thread + 1) / threads;
        while (piece < end) {
            const ptrdiff_t group = piece / l.panels, from = piece % l.panels;
            const ptrdiff_t to = end - piece < l.panels - from ? from + end - piece : l.panels;
            forward_group(step, &l, group, from, to, own);
            piece += to - from;
        }
#ifdef _OPENMP
#pragma omp barrier
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t b = 0; b < B; b++)
            merge_example(step, &l, b);

        /* from the last tile to the first: what pass 1 wrote last is still in cache */
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
        for (ptrdiff_t t = 0; t < l.tiles; t++)
            update_tile(&update, l.tiles - 1 - t);
    }
}
