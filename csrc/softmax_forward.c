/* Log-normaliser and target score of each example, for evaluation: pass 1 of the training step
 * without gradients. Only a tile of scores exists at a time.
 *
 * An example's result has the same bits in any batch and with any number of threads: its lanes
 * never meet another's, and the groups of tiles whose sums are merged follow from V alone.
 */
#include "softmax.h"
#include "softmax_tile.h"
#include "threads.h"

#define MOST_GROUPS 64

struct forward_layout {
    ptrdiff_t panels, padded_batch, tiles, tiles_in_group, groups;
    size_t packed;  /* float (panels, H, PANEL) */
    size_t sums;    /* double (groups, padded_batch) sum of exp(score - reference) */
    size_t last;    /* float (groups, padded_batch) the reference */
    size_t target;  /* float (padded_batch) */
    size_t scores;  /* float (threads, TILE_ROWS, PANEL) */
    size_t bytes;
};

static struct forward_layout forward_layout(ptrdiff_t batch, ptrdiff_t hidden_size,
                                            ptrdiff_t vocabulary, int threads) {
    struct forward_layout l;
    threads = threads > 1 ? threads : 1;
    l.panels = (batch + PANEL - 1) / PANEL;
    l.padded_batch = l.panels * PANEL;
    l.tiles = (vocabulary + TILE_ROWS - 1) / TILE_ROWS;
    l.tiles_in_group = l.tiles > 0 ? (l.tiles + MOST_GROUPS - 1) / MOST_GROUPS : 1;
    l.groups = (l.tiles + l.tiles_in_group - 1) / l.tiles_in_group;
    size_t end = 0;
    l.packed = place(&end, l.padded_batch * hidden_size, sizeof(float));
    l.sums = place(&end, l.groups * l.padded_batch, sizeof(double));
    l.last = place(&end, l.groups * l.padded_batch, sizeof(float));
    l.target = place(&end, l.padded_batch, sizeof(float));
    l.scores = place(&end, threads * TILE_ROWS * PANEL, sizeof(float));
    l.bytes = end;
    return l;
}

size_t FASTNPLM_NAME(softmax_forward_scratch)(const struct softmax_forward_scratch *shape) {
    return forward_layout(shape->batch, shape->hidden_size, shape->vocabulary, shape->threads).bytes;
}

/* reference and sum (PANEL,) take in one tile's scores (rows, PANEL), whose maxima are highest. */
static void add_tile(ptrdiff_t rows, const float *scores, const vector highest[2],
                     vector reference[2], double *sum) {
    for (int v = 0; v < 2; v++) {
        const vector next = vector_max(highest[v], reference[v]);
        const vector by = vector_exp_softmax(reference[v] - next);
        vector total = {0};
        for (ptrdiff_t r = 0; r < rows; r++) {
            const vector x = vector_load(scores + r * PANEL + v * LANES);
            total += vector_exp_softmax(x - next);
        }
        for (int lane = 0; lane < LANES; lane++)
            sum[v * LANES + lane] = sum[v * LANES + lane] * by[lane] + total[lane];
        reference[v] = next;
    }
}

static void forward_panel(const struct softmax_forward *f, const struct forward_layout *l,
                          ptrdiff_t group, ptrdiff_t panel, float *scores) {
    char *scratch = f->scratch;
    const ptrdiff_t H = f->hidden_size, at = group * l->padded_batch + panel * PANEL;
    const float *packed = (float *)(scratch + l->packed) + panel * PANEL * H;
    float *last = (float *)(scratch + l->last) + at;
    float *target = (float *)(scratch + l->target) + panel * PANEL;
    double *sum = (double *)(scratch + l->sums) + at;
    const ptrdiff_t left = f->batch - panel * PANEL, lanes = left < PANEL ? left : PANEL;

    /* not -INFINITY: a tile of nothing but impossible words must not give infinity - infinity */
    vector reference[2] = {vector_splat(-FLT_MAX), vector_splat(-FLT_MAX)};
    memset(sum, 0, PANEL * sizeof *sum);
    for (ptrdiff_t tile = group * l->tiles_in_group;
         tile < (group + 1) * l->tiles_in_group && tile < l->tiles; tile++) {
        const ptrdiff_t first = tile * TILE_ROWS;
        const ptrdiff_t rows = f->vocabulary - first < TILE_ROWS ? f->vocabulary - first : TILE_ROWS;
        vector highest[2] = {vector_splat(-INFINITY), vector_splat(-INFINITY)};
        score_tile(rows, H, f->output_weight + first * H, H, f->output_bias + first, packed, scores,
                   highest);
        for (ptrdiff_t lane = 0; lane < lanes; lane++) {
            const ptrdiff_t row = f->targets[panel * PANEL + lane] - first;
            if (row >= 0 && row < rows)
                target[lane] = scores[row * PANEL + lane];
        }
        add_tile(rows, scores, highest, reference, sum);
    }
    vector_store(last, reference[0]);
    vector_store(last + LANES, reference[1]);
}

int FASTNPLM_NAME(softmax_forward)(const struct softmax_forward *f) {
    const struct forward_layout l =
        forward_layout(f->batch, f->hidden_size, f->vocabulary, f->threads);
    const int wanted = threads_for(2 * f->batch * f->hidden_size * f->vocabulary, f->threads);
    (void)wanted; /* without OpenMP */
    char *scratch = f->scratch;
    const double *sums = (double *)(scratch + l.sums);
    const float *last = (float *)(scratch + l.last);

#ifdef _OPENMP
#pragma omp parallel num_threads(wanted) if (wanted > 1)
#endif
    {
        float *scores = (float *)(scratch + l.scores) + thread_number() * TILE_ROWS * PANEL;

#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t panel = 0; panel < l.panels; panel++)
            pack_panel(f->hidden, NULL, f->batch, f->hidden_size, panel * PANEL,
                       (float *)(scratch + l.packed) + panel * PANEL * f->hidden_size);

        /* group by group, so that its weights are in cache for the next panel */
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t piece = 0; piece < l.groups * l.panels; piece++)
            forward_panel(f, &l, piece / l.panels, piece % l.panels, scores);

#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t b = 0; b < f->batch; b++) {
            double highest = -INFINITY, sum = 0.0;
            for (ptrdiff_t g = 0; g < l.groups; g++)
                if (last[g * l.padded_batch + b] > highest)
                    highest = last[g * l.padded_batch + b];
            for (ptrdiff_t g = 0; g < l.groups; g++)
                sum += sums[g * l.padded_batch + b] *
                       exp((double)last[g * l.padded_batch + b] - highest);
            f->log_normalizer[b] = highest + log(sum);
            f->target_score[b] = ((float *)(scratch + l.target))[b];
        }
    }
    return 0;
}
