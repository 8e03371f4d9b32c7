/* The k likeliest words of each example, by score: no softmax is needed to rank them.
 *
 * Threads own ranges of tiles and each keeps its own k best of every example; what they keep is
 * merged by (score, id). Which thread saw a word cannot change the result.
 */
#include <stdlib.h>

#include "softmax.h"
#include "softmax_tile.h"
#include "threads.h"

struct candidate {
    float score;
    int32_t id;
};

/* Negative if a stands before b: higher score first, then smaller id; NaN is the lowest score. */
static int compare(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    const float x = a->score == a->score ? a->score : -INFINITY;
    const float y = b->score == b->score ? b->score : -INFINITY;
    if (x != y)
        return x > y ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* A heap of at most k candidates, the worst at its root. */
static void keep_if_better(struct candidate *heap, ptrdiff_t *count, ptrdiff_t k,
                           struct candidate next) {
    ptrdiff_t i;
    if (*count < k) {
        for (i = (*count)++; i > 0 && compare(&heap[(i - 1) / 2], &next) < 0; i = (i - 1) / 2)
            heap[i] = heap[(i - 1) / 2];
    } else if (compare(&next, &heap[0]) < 0) {
        for (i = 0;;) {
            ptrdiff_t child = 2 * i + 1;
            if (child >= k)
                break;
            if (child + 1 < k && compare(&heap[child], &heap[child + 1]) < 0)
                child++;
            if (compare(&next, &heap[child]) >= 0)
                break;
            heap[i] = heap[child];
            i = child;
        }
    } else {
        return;
    }
    heap[i] = next;
}

struct top_layout {
    ptrdiff_t panels, tiles;
    size_t packed; /* float (panels, H, PANEL) */
    size_t heaps;  /* struct candidate (batch, threads, k) */
    size_t counts; /* ptrdiff_t (batch, threads) */
    size_t scores; /* float (threads, TILE_ROWS, PANEL) */
    size_t bytes;
};

static struct top_layout top_layout(ptrdiff_t batch, ptrdiff_t hidden_size, ptrdiff_t vocabulary,
                                    ptrdiff_t k, int threads) {
    struct top_layout l;
    threads = threads > 1 ? threads : 1;
    l.panels = (batch + PANEL - 1) / PANEL;
    l.tiles = (vocabulary + TILE_ROWS - 1) / TILE_ROWS;
    size_t end = 0;
    l.packed = place(&end, l.panels * PANEL * hidden_size, sizeof(float));
    l.heaps = place(&end, batch * threads * k, sizeof(struct candidate));
    l.counts = place(&end, batch * threads, sizeof(ptrdiff_t));
    l.scores = place(&end, threads * TILE_ROWS * PANEL, sizeof(float));
    l.bytes = end;
    return l;
}

size_t FASTNPLM_NAME(softmax_top_k_scratch)(const struct softmax_top_k_scratch *shape) {
    return top_layout(shape->batch, shape->hidden_size, shape->vocabulary, shape->k, shape->threads)
        .bytes;
}

/* The heaps of a panel's examples, threads apart, take in one tile's scores. A lane is looked
 * through only if the tile's highest score can enter its heap. */
static void keep_best(const struct softmax_top_k *t, ptrdiff_t panel, ptrdiff_t first,
                      ptrdiff_t rows, const float *scores, const vector highest[2],
                      struct candidate *heaps, ptrdiff_t *counts, ptrdiff_t threads) {
    const ptrdiff_t left = t->batch - panel * PANEL, lanes = left < PANEL ? left : PANEL;
    for (ptrdiff_t lane = 0; lane < lanes; lane++) {
        const ptrdiff_t at = (panel * PANEL + lane) * threads;
        struct candidate *heap = heaps + at * t->k;
        if (counts[at] == t->k && !(highest[lane / LANES][lane % LANES] > heap[0].score) &&
            heap[0].score == heap[0].score)
            continue;
        for (ptrdiff_t r = 0; r < rows; r++) {
            const struct candidate next = {scores[r * PANEL + lane], (int32_t)(first + r)};
            keep_if_better(heap, &counts[at], t->k, next);
        }
    }
}

int FASTNPLM_NAME(softmax_top_k)(const struct softmax_top_k *t) {
    const ptrdiff_t H = t->hidden_size, k = t->k;
    const int wanted = threads_for(2 * t->batch * H * t->vocabulary, t->threads);
    const struct top_layout l = top_layout(t->batch, H, t->vocabulary, k, wanted);
    char *scratch = t->scratch;
    struct candidate *heaps = (struct candidate *)(scratch + l.heaps);
    ptrdiff_t *counts = (ptrdiff_t *)(scratch + l.counts);
    float *packed = (float *)(scratch + l.packed);
    memset(counts, 0, (size_t)(t->batch * wanted) * sizeof *counts);

#ifdef _OPENMP
#pragma omp parallel num_threads(wanted) if (wanted > 1)
#endif
    {
        const ptrdiff_t thread = thread_number(), threads = thread_count();
        float *scores = (float *)(scratch + l.scores) + thread * TILE_ROWS * PANEL;
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t panel = 0; panel < l.panels; panel++)
            pack_panel(t->hidden, NULL, t->batch, H, panel * PANEL,
                       packed + panel * PANEL * H);

        for (ptrdiff_t tile = l.tiles * thread / threads; tile < l.tiles * (thread + 1) / threads;
             tile++) {
            const ptrdiff_t first = tile * TILE_ROWS;
            const ptrdiff_t left = t->vocabulary - first, rows = left < TILE_ROWS ? left : TILE_ROWS;
            for (ptrdiff_t panel = 0; panel < l.panels; panel++) {
                vector highest[2] = {vector_splat(-INFINITY), vector_splat(-INFINITY)};
                score_tile(rows, H, t->output_weight + first * H, H, t->output_bias + first,
                           packed + panel * PANEL * H, scores, highest);
                keep_best(t, panel, first, rows, scores, highest, heaps + thread * k,
                          counts + thread, wanted);
            }
        }
#ifdef _OPENMP
#pragma omp barrier
#pragma omp for schedule(static)
#endif
        for (ptrdiff_t b = 0; b < t->batch; b++) {
            struct candidate *all = heaps + b * wanted * k;
            ptrdiff_t count = 0;
            for (ptrdiff_t i = 0; i < wanted; i++) {
                memmove(all + count, all + i * k, (size_t)counts[b * wanted + i] * sizeof *all);
                count += counts[b * wanted + i];
            }
            qsort(all, (size_t)count, sizeof *all, compare);
            for (ptrdiff_t i = 0; i < k; i++) {
                t->ids[b * k + i] = all[i].id;
                t->scores[b * k + i] = all[i].score;
            }
        }
    }
    return 0;
}
