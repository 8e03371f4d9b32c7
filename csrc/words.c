/* The hidden layer straight from word ids: each distinct word of a context position is projected
 * once, and the projections are added up.
 *
 * With D the distinct words of position n, the forward pass is D projections of dim x hidden and,
 * for each example, a sum of context rows; backward the gradient of tanh's argument is first summed
 * over the examples that share a word, so that both products run over distinct words too. Texts
 * repeat themselves (at 1,024 examples of Zipf's law 0.6 of a position's words are distinct), and
 * where they do not, the detour costs a few per cent.
 *
 * In bfloat16 the operands of the products are first made rows of words (pair_rows.h); the sums of
 * gradients, the bias and the embedding's step are float32 as ever.
 */
#include "target.h"

#include "groups.h"
#include "kernels.h"
#include "packed.h"
#include "pair_rows.h"
#include "rows.h"
#include "tanh_backward.h"
#include "threads.h"
#include "vector_math.h"

/* Pieces of the caller's scratch, each beginning at a multiple of 64 bytes. */
INLINE uintptr_t take(uintptr_t *at, size_t bytes) {
    uintptr_t piece = *at;
    *at += (bytes + 63) & ~(uintptr_t)63;
    return piece;
}

struct workspace {
    struct groups *groups; /* (context) */
    uint8_t *group_memory; /* (context) of groups_bytes(batch) */
    uint8_t *all_memory;   /* groups_bytes(batch * context) */
    int32_t *words;        /* (batch * context) the distinct words of every position */
    float *weights;        /* (context) of packed_size: a position's weights, packed */
    float *rows;           /* (batch * context, dims) embedding rows */
    float *grads;          /* (batch * context, dims) gradients of embedding rows */
    float *sums;           /* (batch * context, hiddens) projections, or their gradients */
    float *turned;         /* (context, dim, hiddens) the gradient of the weights, transposed */
    float *runs;           /* (runs, hiddens) parts of the bias's gradient */
    ptrdiff_t dims, hiddens, packed_size; /* dim and hidden filled up to whole vectors */
    /* bfloat16 only: rows of words */
    float *weight_words; /* (context, hidden, dims) the weights, paired along dim or along hidden */
    float *sum_rows;     /* (batch * context, hiddens) sums paired along hidden */
    float *sum_columns;  /* (batch * context, hiddens) sums paired along the distinct words */
};

/* Lays the workspace out from address at and returns the address where it ends. */
static uintptr_t lay_out(struct workspace *w, uintptr_t at, const struct words_scratch *size) {
    ptrdiff_t batch = size->batch, context = size->context, dim = size->dim, hidden = size->hidden;
    size_t words = (size_t)(batch * context);
    int pairs = size->precision == PRECISION_BFLOAT16;
    w->dims = packed_columns(dim);
    w->hiddens = packed_columns(hidden);
    ptrdiff_t forward = dim * w->hiddens, backward = hidden * w->dims;
    w->packed_size = (forward > backward ? forward : backward) + LANES;
    at = (at + 63) & ~(uintptr_t)63;
    w->groups = (void *)take(&at, (size_t)context * sizeof(struct groups));
    w->group_memory = (void *)take(&at, (size_t)context * groups_bytes(batch));
    w->all_memory = (void *)take(&at, groups_bytes(batch * context));
    w->words = (void *)take(&at, words * sizeof(int32_t));
    w->weights = (void *)take(&at, (size_t)(w->packed_size * context) * sizeof(float));
    w->rows = (void *)take(&at, words * (size_t)w->dims * sizeof(float));
    w->grads = (void *)take(&at, words * (size_t)w->dims * sizeof(float));
    w->sums = (void *)take(&at, words * (size_t)w->hiddens * sizeof(float));
    w->turned = (void *)take(&at, (size_t)(context * dim * w->hiddens) * sizeof(float));
    w->runs = (void *)take(&at, (size_t)(run_count(batch) * w->hiddens) * sizeof(float));
    size_t weights = pairs ? (size_t)(context * hidden * w->dims) : 0;
    size_t sums = pairs ? words * (size_t)w->hiddens : 0;
    w->weight_words = (void *)take(&at, weights * sizeof(float));
    w->sum_rows = (void *)take(&at, sums * sizeof(float));
    w->sum_columns = (void *)take(&at, sums * sizeof(float));
    return at;
}

size_t FASTNPLM_NAME(words_scratch)(const struct words_scratch *call) {
    struct workspace w;
    return lay_out(&w, 0, call) + 64;
}

/* The part of a row of sums or words that belongs to position n. */
INLINE float *sums_of(const struct workspace *w, ptrdiff_t n, ptrdiff_t batch) {
    return w->sums + n * batch * w->hiddens;
}

/* The sum of count rows' vectors at h on top of sum, and tanh of it where nothing is missing. */
INLINE vector add_rows(vector sum, const float *const *rows, ptrdiff_t count, ptrdiff_t h,
                       const int whole) {
    for (ptrdiff_t r = 0; r < count; r++)
        sum += vector_load(rows[r] + h);
    return whole ? vector_tanh(sum) : sum;
}

/* hidden[b] (+)= count rows, which begin with the bias; whole: and tanh of it. Two vectors at a
 * time, each a chain of operations too long to fill the processor. */
INLINE void add_some(float *out, const float *begin, const float *const *rows, ptrdiff_t count,
                     ptrdiff_t hidden, const int whole) {
    ptrdiff_t h = 0;
    for (; h + 2 * LANES <= hidden; h += 2 * LANES) {
        const vector first = add_rows(vector_load(begin + h), rows, count, h, whole);
        const vector second =
            add_rows(vector_load(begin + h + LANES), rows, count, h + LANES, whole);
        vector_store(out + h, first);
        vector_store(out + h + LANES, second);
    }
    for (; h < hidden; h += LANES) {
        const ptrdiff_t left = hidden - h < LANES ? hidden - h : LANES;
        const vector sum = vector_load_first(begin + h, left);
        vector_store_first(out + h, add_rows(sum, rows, count, h, whole), left);
    }
}

/* hidden[b] = tanh(bias + the projections of b's words). */
static void add_projections(const struct words_forward *call, const struct workspace *w,
                            ptrdiff_t b) {
    enum { AT_ONCE = 16 };
    float *out = call->values + b * call->hidden;
    const float *begin = call->bias;
    ptrdiff_t n = 0;
    do {
        const float *rows[AT_ONCE];
        ptrdiff_t count = 0;
        for (; count < AT_ONCE && n < call->context; n++)
            rows[count++] = sums_of(w, n, call->batch) + w->groups[n].group[b] * w->hiddens;
        if (n < call->context)
            add_some(out, begin, rows, count, call->hidden, 0);
        else
            add_some(out, begin, rows, count, call->hidden, 1);
        begin = out;
    } while (n < call->context);
}

/* Project one block of position n's distinct words. */
static void project(const struct words_forward *call, const struct workspace *w, ptrdiff_t n,
                    ptrdiff_t block) {
    ptrdiff_t dim = call->dim, first = block * PACKED_ROWS;
    int pairs = call->precision == PRECISION_BFLOAT16;
    const struct groups *groups = &w->groups[n];
    ptrdiff_t end =
        first + PACKED_ROWS < groups->count ? first + PACKED_ROWS : groups->count;
    float *rows = w->rows + n * call->batch * w->dims;
    for (ptrdiff_t u = first; u < end; u++) {
        if (u + ROWS_AHEAD < groups->count)
            row_prefetch(call->embedding + groups->distinct[u + ROWS_AHEAD] * dim, dim);
        const float *row = call->embedding + groups->distinct[u] * dim;
        if (pairs)
            pair_across(rows + u * words_of(dim), row, dim);
        else
            row_copy(rows + u * dim, row, dim);
    }
    struct product product = {
        .rows = groups->count,
        .columns = w->hiddens,
        .depth = pairs ? words_of(dim) : dim,
        .a = rows,
        .a_row = pairs ? words_of(dim) : dim,
        .a_depth = 1,
        .pairs = pairs,
        .packed = w->weights + n * w->packed_size,
        .out = sums_of(w, n, call->batch),
        .out_row = w->hiddens,
    };
    FASTNPLM_NAME(packed_block)(&product, block);
}

int FASTNPLM_NAME(words_forward)(const struct words_forward *call) {
    ptrdiff_t batch = call->batch, context = call->context, dim = call->dim;
    const struct words_scratch size = {batch, context, dim, call->hidden, call->precision, 0};
    struct workspace w;
    lay_out(&w, (uintptr_t)call->scratch, &size);
    ptrdiff_t panels = panel_count(call->hidden), width = context * dim;
    int pairs = call->precision == PRECISION_BFLOAT16;
    int threads = threads_for(batch * width * call->hidden / 8, call->threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(dynamic) nowait
        for (ptrdiff_t n = 0; n < context; n++)
            w.groups[n] = group_ids(call->contexts + n, context, batch,
                                    w.group_memory + (size_t)n * groups_bytes(batch));
        if (pairs) {
#pragma omp for schedule(static)
            for (ptrdiff_t item = 0; item < context * call->hidden; item++) {
                ptrdiff_t n = item / call->hidden, h = item % call->hidden;
                pair_across(w.weight_words + item * w.dims, call->weight + h * width + n * dim, dim);
            }
        }
#pragma omp for schedule(dynamic)
        for (ptrdiff_t item = 0; item < context * panels; item++) {
            ptrdiff_t n = item / panels;
            const float *weight = pairs ? w.weight_words + n * call->hidden * w.dims
                                        : call->weight + n * dim;
            FASTNPLM_NAME(pack_transposed)(weight, pairs ? w.dims : width,
                                           pairs ? words_of(dim) : dim, call->hidden,
                                           item % panels, w.weights + n * w.packed_size);
        }
        for (ptrdiff_t n = 0; n < context; n++) {
#pragma omp for schedule(dynamic) nowait
            for (ptrdiff_t block = 0; block < row_blocks(w.groups[n].count); block++)
                project(call, &w, n, block);
        }
#pragma omp barrier
#pragma omp for schedule(static)
        for (ptrdiff_t b = 0; b < batch; b++)
            add_projections(call, &w, b);
    }
    return 0;
}

/* Sum the gradient over the examples that have this word at this position. */
INLINE void sum_gradients(const struct words_backward *call, const struct workspace *w,
                          ptrdiff_t n, ptrdiff_t u) {
    const struct groups *groups = &w->groups[n];
    ptrdiff_t hidden = call->hidden;
    float *sum = sums_of(w, n, call->batch) + u * w->hiddens;
    ptrdiff_t m = groups->start[u];
    row_copy(sum, call->grad_hidden + groups->members[m] * hidden, hidden);
    for (m++; m < groups->start[u + 1]; m++)
        row_add(sum, call->grad_hidden + groups->members[m] * hidden, hidden);
}

/* The same for position n's words [from, to), and their sums as operands of products. */
static void sum_words(const struct words_backward *call, const struct workspace *w, ptrdiff_t n,
                      ptrdiff_t from, ptrdiff_t to) {
    ptrdiff_t hidden = call->hidden, rows = words_of(hidden), first = n * call->batch;
    for (ptrdiff_t u = from; u < to; u++) {
        const float *row = call->embedding + w->groups[n].distinct[u] * call->dim;
        row_prefetch(row, call->dim); /* copy_words reads it next */
        sum_gradients(call, w, n, u);
    }
    if (call->precision != PRECISION_BFLOAT16)
        return;
    const float *sums = sums_of(w, n, call->batch);
    for (ptrdiff_t u = from; u < to; u++)
        pair_across(w->sum_rows + first * w->hiddens + u * rows, sums + u * w->hiddens, hidden);
    for (ptrdiff_t u = from; u < to; u += PAIRED)
        pair_down(w->sum_columns + (first + u / PAIRED) * w->hiddens, sums + u * w->hiddens,
                  u + 1 < to ? sums + (u + 1) * w->hiddens : NULL, hidden);
}

/* The embedding rows of position n's words from first on, in bfloat16 paired along the words. */
static void copy_words(const struct words_backward *call, const struct workspace *w, ptrdiff_t n,
                       ptrdiff_t from, ptrdiff_t to) {
    const struct groups *groups = &w->groups[n];
    const int pairs = call->precision == PRECISION_BFLOAT16;
    const ptrdiff_t dim = call->dim, step = pairs ? PAIRED : 1;
    float *row = w->rows + (n * call->batch + from / step) * w->dims;
    for (ptrdiff_t u = from; u < to; u += step, row += w->dims) {
        const float *first = call->embedding + groups->distinct[u] * dim;
        if (!pairs)
            row_copy(row, first, dim);
        else
            pair_down(row, first,
                      u + 1 < to ? call->embedding + groups->distinct[u + 1] * dim : NULL, dim);
    }
}

/* The weights of position n, paired along hidden. */
static void pair_weights(const struct words_backward *call, const struct workspace *w,
                         ptrdiff_t n) {
    ptrdiff_t width = call->context * call->dim, hidden = call->hidden;
    const float *weight = call->weight + n * call->dim;
    float *to = w->weight_words + n * hidden * w->dims;
    for (ptrdiff_t h = 0; h < hidden; h += PAIRED, to += w->dims)
        pair_down(to, weight + h * width, h + 1 < hidden ? weight + (h + 1) * width : NULL,
                  call->dim);
}

/* Pack one panel of position n's weights. */
static void pack_weights(const struct words_backward *call, const struct workspace *w, ptrdiff_t n,
                         ptrdiff_t panel) {
    const int pairs = call->precision == PRECISION_BFLOAT16;
    const ptrdiff_t dim = call->dim, hidden = call->hidden;
    const float *weight = pairs ? w->weight_words + n * hidden * w->dims : call->weight + n * dim;
    FASTNPLM_NAME(pack_columns)(weight, pairs ? w->dims : call->context * dim,
                                pairs ? words_of(hidden) : hidden, dim, panel,
                                w->weights + n * w->packed_size);
}

/* The two products of position n. That of its weights is made transposed, so that both operands are
 * read where they lie: rows of embeddings, and sums. */
static struct product weight_product(const struct words_backward *call, const struct workspace *w,
                                     ptrdiff_t n) {
    int pairs = call->precision == PRECISION_BFLOAT16;
    return (struct product){
        .rows = call->dim,
        .columns = w->hiddens,
        .depth = pairs ? words_of(w->groups[n].count) : w->groups[n].count,
        .a = w->rows + n * call->batch * w->dims,
        .a_row = 1,
        .a_depth = w->dims,
        .pairs = pairs,
        .packed = pairs ? w->sum_columns + n * call->batch * w->hiddens
                        : sums_of(w, n, call->batch),
        .b_row = w->hiddens,
        .out = w->turned + n * call->dim * w->hiddens,
        .out_row = w->hiddens,
    };
}

/* The gradient of the weights of units [first, end) at position n, from where it was made. */
static void turn(const struct words_backward *call, const struct workspace *w, ptrdiff_t n,
                 ptrdiff_t first, ptrdiff_t end) {
    const ptrdiff_t dim = call->dim, width = call->context * dim;
    const float *from = w->turned + n * dim * w->hiddens;
    float *to = call->grad_weight + n * dim;
    for (ptrdiff_t d = 0; d < dim; d++)
        for (ptrdiff_t h = first; h < end; h++)
            to[h * width + d] = from[d * w->hiddens + h];
}

static struct product row_product(const struct words_backward *call, const struct workspace *w,
                                  ptrdiff_t n) {
    int pairs = call->precision == PRECISION_BFLOAT16;
    return (struct product){
        .rows = w->groups[n].count,
        .columns = w->dims,
        .depth = pairs ? words_of(call->hidden) : call->hidden,
        .a = pairs ? w->sum_rows + n * call->batch * w->hiddens : sums_of(w, n, call->batch),
        .a_row = pairs ? words_of(call->hidden) : w->hiddens,
        .pairs = pairs,
        .a_depth = 1,
        .packed = w->weights + n * w->packed_size,
        .out = w->grads + n * call->batch * w->dims,
        .out_row = w->dims,
    };
}

/* One step on the embedding row of word g of all; its gradients are those of its positions. */
static void step_row(const struct words_backward *call, const struct workspace *w,
                     const struct groups *all, ptrdiff_t g) {
    ptrdiff_t dim = call->dim, m = all->start[g];
    float *sum = w->grads + all->members[m] * w->dims;
    if (g + ROWS_AHEAD < all->count) {
        row_prefetch(call->embedding + all->distinct[g + ROWS_AHEAD] * dim, dim);
        row_prefetch(w->grads + all->members[all->start[g + ROWS_AHEAD]] * w->dims, dim);
    }
    for (m++; m < all->start[g + 1]; m++)
        row_add(sum, w->grads + all->members[m] * w->dims, dim);
    ptrdiff_t at = all->distinct[g] * dim;
    float *slot = call->slots + at;
    const struct rule_values values = rule_values(call->hyper, 1);
    apply_rule(call->rule, &values, dim, sum, call->embedding + at, slot, slot + call->vocabulary * dim);
}

/* The distinct words of each position, and of all: words holds them position by position, the rest
 * of a position's part filled up with -1. */
static struct groups group_words(const struct words_backward *call, const struct workspace *w) {
    ptrdiff_t batch = call->batch;
    for (ptrdiff_t n = 0; n < call->context; n++)
        for (ptrdiff_t u = 0; u < batch; u++)
            w->words[n * batch + u] = u < w->groups[n].count ? w->groups[n].distinct[u] : -1;
    return group_ids(w->words, 1, batch * call->context, w->all_memory);
}

int FASTNPLM_NAME(words_backward)(const struct words_backward *call) {
    enum { WORDS = 32 }; /* whose gradients are summed as one item of work: whole pairs */
    ptrdiff_t batch = call->batch, context = call->context, dim = call->dim;
    ptrdiff_t hidden = call->hidden, width = context * dim, panels = panel_count(dim);
    const struct words_scratch size = {batch, context, dim, hidden, call->precision, 0};
    struct workspace w;
    lay_out(&w, (uintptr_t)call->scratch, &size);
    struct groups all = {0};
    struct tanh_backward tanh_call = {
        .values = call->values,
        .grad_bias = call->grad_bias,
        .grad_hidden = call->grad_hidden,
        .batch = batch,
        .hidden = hidden,
    };
    int threads = threads_for(batch * width * hidden / 4, call->threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(dynamic) nowait
        for (ptrdiff_t n = 0; n < context; n++)
            w.groups[n] = group_ids(call->contexts + n, context, batch,
                                    w.group_memory + (size_t)n * groups_bytes(batch));
#pragma omp for schedule(dynamic)
        for (ptrdiff_t run = 0; run < run_count(batch); run++)
            tanh_backward_run(&tanh_call, run, w.runs + run * w.hiddens);
#pragma omp single nowait
        {
            add_runs(&tanh_call, w.runs, w.hiddens);
            all = group_words(call, &w);
        }
        for (ptrdiff_t n = 0; n < context; n++) {
            ptrdiff_t count = w.groups[n].count, items = (count + WORDS - 1) / WORDS;
#pragma omp for schedule(dynamic) nowait
            for (ptrdiff_t item = 0; item < items; item++) {
                ptrdiff_t end = (item + 1) * WORDS;
                end = end < count ? end : count;
                sum_words(call, &w, n, item * WORDS, end);
                copy_words(call, &w, n, item * WORDS, end);
            }
        }
        if (call->precision == PRECISION_BFLOAT16) {
#pragma omp for schedule(dynamic)
            for (ptrdiff_t n = 0; n < context; n++)
                pair_weights(call, &w, n);
        }
#pragma omp for schedule(dynamic)
        for (ptrdiff_t item = 0; item < context * panels; item++)
            pack_weights(call, &w, item / panels, item % panels);
        for (ptrdiff_t n = 0; n < context; n++) {
            struct product of_weight = weight_product(call, &w, n);
            struct product of_rows = row_product(call, &w, n);
#pragma omp for schedule(dynamic) nowait
            for (ptrdiff_t block = 0; block < row_blocks(dim); block++)
                FASTNPLM_NAME(packed_block)(&of_weight, block);
#pragma omp for schedule(dynamic) nowait
            for (ptrdiff_t block = 0; block < row_blocks(w.groups[n].count); block++)
                FASTNPLM_NAME(packed_block)(&of_rows, block);
        }
#pragma omp barrier
        const ptrdiff_t stretches = (hidden + LANES - 1) / LANES;
#pragma omp for schedule(dynamic, 4) nowait
        for (ptrdiff_t item = 0; item < context * stretches; item++) {
            ptrdiff_t first = item % stretches * LANES, end = first + LANES;
            turn(call, &w, item / stretches, first, end < hidden ? end : hidden);
        }
#pragma omp for schedule(dynamic, 32)
        for (ptrdiff_t g = 0; g < all.count; g++)
            step_row(call, &w, &all, g);
    }
    return 0;
}
