/* How a step is cut into pieces, and where each piece of its scratch lies.
 *
 * Everything here follows from the shapes alone, never from the number of threads: that, and a
 * fixed order of merging, is what gives the same bits for any number of threads.
 */
#ifndef FASTNPLM_SOFTMAX_LAYOUT_H
#define FASTNPLM_SOFTMAX_LAYOUT_H

#include "softmax.h"
#include "softmax_tile.h"
#include "softmax_weights.h"

/* Pieces of pass 1 that there should be at least, for threads to share: panels of examples, and
 * where those are too few, groups of tiles too. */
#define PIECES 16
#define TILES_IN_GROUP 4
#define MOST_TOGETHER 32

/* Words of the exponentials of GRADIENT_ROWS words of the vocabulary for one panel. */
#define BLOCK_WORDS (GRADIENT_ROWS * WORDS(PANEL))

struct softmax_layout {
    ptrdiff_t panels, padded_batch; /* padded_batch = panels * PANEL */
    ptrdiff_t tiles, groups, tiles_in_group;
    ptrdiff_t column_vectors, padded_columns; /* H in whole vectors */
    ptrdiff_t tiles_together;                 /* whose weights stay in cache for all panels */
    ptrdiff_t tile_words;                     /* the exponentials of a tile: TILE_ROWS x batch */
    ptrdiff_t kept_tiles;                     /* the last so many keep theirs between the passes */

    /* offsets into the scratch, in bytes */
    size_t packed;     /* word (panels, WORDS(H), PANEL) hidden, see pack_panel */
    size_t gradients;  /* float (groups, panels, H, PANEL) */
    size_t references; /* float (tiles, padded_batch) what a tile's exponents are relative to */
    size_t sums;       /* double (groups, padded_batch) of exponentials */
    size_t last;       /* float (groups, padded_batch) reference after the group's last tile */
    size_t normalizer; /* double (padded_batch) log2 of the sum of 2^score */
    size_t target;     /* float (padded_batch) score of the target */
    size_t order;      /* int32 (padded_batch) examples by the tile of their target */
    size_t starts;     /* int32 (tiles + 1) where a tile's examples begin in order */
    size_t threads;    /* what each thread has for itself: thread_bytes apart */
    size_t kept;       /* word (kept_tiles, tile_words) */

    /* offsets into a thread's part */
    size_t scores;      /* float (TILE_ROWS, PANEL) */
    size_t scale;       /* float (padded_batch) */
    size_t scale_apart; /* float (padded_batch) */
    size_t scaled;      /* word (WORDS(padded_batch), padded_columns) scale * hidden, packed */
    size_t tile_grad;   /* float (TILE_ROWS, padded_columns) */
    size_t tile_again;  /* word (tile_words) exponentials of a tile that were not kept */
    size_t rows;        /* bfloat16 only, word (tiles_together, row_words): see tile_weights */
    size_t columns;     /* bfloat16 only, word (tiles_together, column_words) */
    size_t thread_bytes;
};

static inline ptrdiff_t tile_rows(ptrdiff_t vocabulary, ptrdiff_t tile) {
    const ptrdiff_t left = vocabulary - tile * TILE_ROWS;
    return left < TILE_ROWS ? left : TILE_ROWS;
}

/* Tiles whose weights stay in the second-level cache while one panel after another uses them. */
static inline ptrdiff_t tiles_in_cache(ptrdiff_t hidden_size) {
    const ptrdiff_t width = hidden_size > 0 ? hidden_size : 1;
    const ptrdiff_t tiles = 384 * 1024 / (TILE_ROWS * width * (ptrdiff_t)sizeof(float));
    return tiles < 1 ? 1 : tiles < MOST_TOGETHER ? tiles : MOST_TOGETHER;
}

static inline struct softmax_layout softmax_layout(ptrdiff_t batch, ptrdiff_t hidden_size,
                                                   ptrdiff_t vocabulary, int threads) {
    struct softmax_layout l;
    threads = threads > 1 ? threads : 1;
    l.panels = (batch + PANEL - 1) / PANEL;
    l.padded_batch = l.panels * PANEL;
    l.tiles = (vocabulary + TILE_ROWS - 1) / TILE_ROWS;
    ptrdiff_t groups = (PIECES + l.panels - 1) / (l.panels > 0 ? l.panels : 1);
    if (groups > l.tiles / TILES_IN_GROUP)
        groups = l.tiles / TILES_IN_GROUP;
    if (groups < 1)
        groups = 1;
    l.tiles_in_group = l.tiles > 0 ? (l.tiles + groups - 1) / groups : 1;
    l.groups = (l.tiles + l.tiles_in_group - 1) / l.tiles_in_group;
    l.column_vectors = (hidden_size + LANES - 1) / LANES;
    l.padded_columns = l.column_vectors * LANES;
    l.tile_words = TILE_ROWS * WORDS(l.padded_batch);
    l.tiles_together = tiles_in_cache(hidden_size);
    l.kept_tiles = 0;

    size_t end = 0;
    l.scores = place(&end, TILE_ROWS * PANEL, sizeof(float));
    l.scale = place(&end, l.padded_batch, sizeof(float));
    l.scale_apart = place(&end, l.padded_batch, sizeof(float));
    l.scaled = place(&end, WORDS(l.padded_batch) * l.padded_columns, sizeof(float));
    l.tile_grad = place(&end, TILE_ROWS * l.padded_columns, sizeof(float));
    l.tile_again = place(&end, l.tile_words, sizeof(float));
    l.rows = place(&end, BF16 ? l.tiles_together * row_words(hidden_size) : 0, sizeof(float));
    l.columns = place(&end, IN_PAIRS ? l.tiles_together * column_words(hidden_size) : 0,
                      sizeof(float));
    l.thread_bytes = end + 64; /* neighbours on another cache line */

    end = 0;
    l.packed = place(&end, l.padded_batch * WORDS(hidden_size), sizeof(float));
    l.gradients = place(&end, l.groups * l.padded_batch * hidden_size, sizeof(float));
    l.references = place(&end, l.tiles * l.padded_batch, sizeof(float));
    l.sums = place(&end, l.groups * l.padded_batch, sizeof(double));
    l.last = place(&end, l.groups * l.padded_batch, sizeof(float));
    l.normalizer = place(&end, l.padded_batch, sizeof(double));
    l.target = place(&end, l.padded_batch, sizeof(float));
    l.order = place(&end, l.padded_batch, sizeof(int32_t));
    l.starts = place(&end, l.tiles + 1, sizeof(int32_t));
    l.threads = place(&end, threads, l.thread_bytes);
    l.kept = end;
    return l;
}

#endif
