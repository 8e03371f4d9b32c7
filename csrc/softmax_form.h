/* The training step of the output layer in one form, float32 or bfloat16 operands (BF16): two
 * passes over tiles of the vocabulary.
 *
 * Pass 1, threads own panels of examples: scores of a tile, exponentials, their sum, and
 * grad_hidden += exponentials . output_weight while the tile is in cache (the online softmax:
 * Milakov and Gimelshein 2018; Dao et al. 2022). The merge makes log-sum-exp and losses of it.
 * Pass 2 (softmax_update.h), threads own tiles: the tile's gradient from the kept exponentials, and
 * the optimiser's rule on it. It begins when pass 1 has ended everywhere, so that all of
 * grad_hidden comes from the weights before the step.
 */
#include "softmax_update.h"
#include "threads.h"

/* gradient (H, PANEL) and sum (PANEL,) follow where lanes of the reference move up to highest;
 * lanes that stay are multiplied by e^0 = 1. */
static void move_reference(ptrdiff_t hidden_size, const vector highest[2], const vector limit[2],
                           vector reference[2], double *sum, float *gradient) {
    vector by[2];
    for (int v = 0; v < 2; v++) {
        const vector next = vector_select(highest[v] > limit[v], highest[v], reference[v]);
        by[v] = vector_exp_softmax(reference[v] - next);
        reference[v] = next;
        for (int lane = 0; lane < LANES; lane++)
            sum[v * LANES + lane] *= by[v][lane];
    }
    for (ptrdiff_t k = 0; k < hidden_size; k++, gradient += PANEL) {
        vector_store(gradient, vector_load(gradient) * by[0]);
        vector_store(gradient + LANES, vector_load(gradient + LANES) * by[1]);
    }
}

/* One tile and one panel of pass 1. gradient (H, PANEL) and sum (PANEL,) are relative to
 * reference. */
static void forward_tile(const struct softmax_step *step, const struct softmax_layout *l,
                         ptrdiff_t tile, const struct tile_weights *weights, ptrdiff_t panel,
                         float *scores, vector reference[2], double *sum, float *gradient) {
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size, first = tile * TILE_ROWS;
    const ptrdiff_t rows = tile_rows(step->vocabulary, tile);
    const float *packed = (float *)(scratch + l->packed) + panel * PANEL * WORDS(H);
    float *target_score = (float *)(scratch + l->target) + panel * PANEL;
    float *references = (float *)(scratch + l->references) + tile * l->padded_batch + panel * PANEL;

    const vector limit[2] = {reference[0] + REFERENCE_SLACK, reference[1] + REFERENCE_SLACK};
    vector highest[2] = {limit[0], limit[1]};
    score_tile(rows, WORDS(H), weights->rows, weights->rows_stride, step->output_bias + first,
               packed, scores, highest);

    const ptrdiff_t left = step->batch - panel * PANEL, lanes = left < PANEL ? left : PANEL;
    for (ptrdiff_t lane = 0; lane < lanes; lane++) {
        const ptrdiff_t row = step->targets[panel * PANEL + lane] - first;
        if (row >= 0 && row < rows)
            target_score[lane] = scores[row * PANEL + lane];
    }

    const int_vector moved = (highest[0] > limit[0]) | (highest[1] > limit[1]);
    int moves = 0;
    for (int lane = 0; lane < LANES; lane++)
        moves |= moved[lane];
    if (moves)
        move_reference(H, highest, limit, reference, sum, gradient);
    vector_store(references, reference[0]);
    vector_store(references + LANES, reference[1]);

    float *kept = NULL;
    const ptrdiff_t kept_tile = tile - (l->tiles - l->kept_tiles);
    if (kept_tile >= 0)
        kept = (float *)(scratch + l->kept) + kept_tile * l->tile_words + panel * BLOCK_WORDS;
    vector sums[2];
    exponentials(rows, reference, scores, kept, l->panels * BLOCK_WORDS, sums);
    for (int v = 0; v < 2; v++)
        for (int lane = 0; lane < LANES; lane++)
            sum[v * LANES + lane] += sums[v][lane];
    accumulate_hidden(WORDS(rows), H, weights->columns, weights->columns_stride, scores, gradient);
}

/* Pass 1 over panels [from, to) of one group of tiles. */
static void forward_group(const struct softmax_step *step, const struct softmax_layout *l,
                          ptrdiff_t group, ptrdiff_t from, ptrdiff_t to, char *own) {
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size;
    float *gradients = (float *)(scratch + l->gradients) + group * l->padded_batch * H;
    double *sums = (double *)(scratch + l->sums) + group * l->padded_batch;
    float *last = (float *)(scratch + l->last) + group * l->padded_batch;
    ptrdiff_t end = (group + 1) * l->tiles_in_group;
    end = end < l->tiles ? end : l->tiles;

    memset(gradients + from * PANEL * H, 0, (size_t)((to - from) * PANEL * H) * sizeof(float));
    for (ptrdiff_t b = from * PANEL; b < to * PANEL; b++) {
        sums[b] = 0.0;
        last[b] = -FLT_MAX; /* not -INFINITY: a tile of impossible words would subtract it from itself */
    }
    for (ptrdiff_t tiles = group * l->tiles_in_group; tiles < end; tiles += l->tiles_together) {
        const ptrdiff_t count = end - tiles < l->tiles_together ? end - tiles : l->tiles_together;
        struct tile_weights weights[MOST_TOGETHER];
        for (ptrdiff_t i = 0; i < count; i++)
            weights[i] = tile_weights(tile_rows(step->vocabulary, tiles + i), H,
                                      step->output_weight + (tiles + i) * TILE_ROWS * H,
                                      (float *)(own + l->rows) + i * row_words(H),
                                      (float *)(own + l->columns) + i * column_words(H));
        for (ptrdiff_t panel = from; panel < to; panel++) {
            float *at = last + panel * PANEL;
            vector reference[2] = {vector_load(at), vector_load(at + LANES)};
            for (ptrdiff_t i = 0; i < count; i++)
                forward_tile(step, l, tiles + i, &weights[i], panel, (float *)(own + l->scores),
                             reference, sums + panel * PANEL, gradients + panel * PANEL * H);
            vector_store(at, reference[0]);
            vector_store(at + LANES, reference[1]);
        }
    }
}

/* One example of the merge: groups in order, whoever computed them. */
static void merge_example(const struct softmax_step *step, const struct softmax_layout *l,
                          ptrdiff_t b) {
    char *scratch = step->scratch;
    const ptrdiff_t H = step->hidden_size;
    const double *sums = (double *)(scratch + l->sums);
    const float *last = (float *)(scratch + l->last);
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
        sum += sums[g * l->padded_batch + b] * exp(last[g * l->padded_batch + b] - highest);
    normalizer[b] = highest + log(sum);
    step->losses[b] = normalizer[b] - ((float *)(scratch + l->target))[b];

    const float *target_row = step->output_weight + step->targets[b] * H;
    for (ptrdiff_t k = 0; k < H; k++)
        grad[k] = -operand(target_row[k]) * example_weight;
    for (ptrdiff_t g = 0; g < l->groups; g++) {
        const float by =
            (float)(example_weight * exp(last[g * l->padded_batch + b] - normalizer[b]));
        const float *from = (float *)(scratch + l->gradients) + g * l->padded_batch * H +
                            b / PANEL * PANEL * H + b % PANEL;
        for (ptrdiff_t k = 0; k < H; k++)
            grad[k] += from[k * PANEL] * by;
    }
}

/* order: the examples with a weight, by the tile of their target and then by number; starts: where
 * each tile's begin. Returns how many there are. */
static ptrdiff_t sort_examples(const struct softmax_step *step, const struct softmax_layout *l) {
    int32_t *order = (int32_t *)((char *)step->scratch + l->order);
    int32_t *starts = (int32_t *)((char *)step->scratch + l->starts);
    int32_t used = 0;
    memset(starts, 0, (size_t)(l->tiles + 1) * sizeof *starts);
    for (ptrdiff_t b = 0; b < step->batch; b++)
        starts[step->targets[b] / TILE_ROWS] += step->weights[b] != 0.0f;
    for (ptrdiff_t tile = 0; tile <= l->tiles; tile++) /* now where each tile's end */
        used = starts[tile] += used;
    for (ptrdiff_t b = step->batch - 1; b >= 0; b--) /* from the back: and now where they begin */
        if (step->weights[b] != 0.0f)
            order[--starts[step->targets[b] / TILE_ROWS]] = (int32_t)b;
    return used;
}

static size_t scratch_bytes(const struct softmax_step_scratch *shape) {
    const struct softmax_layout l = softmax_layout(shape->batch, shape->hidden_size,
                                                   shape->vocabulary, shape->threads);
    return l.kept + (shape->keep ? (size_t)(l.tiles * l.tile_words) * sizeof(float) : 0);
}

static int run_step(const struct softmax_step *step) {
    const ptrdiff_t B = step->batch, H = step->hidden_size, V = step->vocabulary;
    struct softmax_layout l = softmax_layout(B, H, V, step->threads);
    char *scratch = step->scratch;
    if (sort_examples(step, &l) == 0) { /* nothing to learn from: nothing changes */
        memset(step->losses, 0, (size_t)B * sizeof(double));
        memset(step->grad_hidden, 0, (size_t)(B * H) * sizeof(float));
        return 0;
    }
    l.kept_tiles = (ptrdiff_t)((step->scratch_bytes - l.kept) / (size_t)l.tile_words / sizeof(float));
    l.kept_tiles = l.kept_tiles < l.tiles ? l.kept_tiles : l.tiles;
    const int wanted = threads_for(6 * B * H * V, step->threads);
    (void)wanted; /* without OpenMP */

#ifdef _OPENMP
#pragma omp parallel num_threads(wanted) if (wanted > 1)
#endif
    {
        const ptrdiff_t thread = thread_number(), threads = thread_count();
        char *own = scratch + l.threads + (size_t)thread * l.thread_bytes;
        struct tile_update update = tile_update(step, &l, own);

#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t panel = 0; panel < l.panels; panel++)
            pack_panel(step->hidden, step->weights, B, H, panel * PANEL,
                       (float *)(scratch + l.packed) + panel * PANEL * WORDS(H));

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
    return 0;
}
