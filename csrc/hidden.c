/* The hidden layer from its inputs: tanh, its backward, and the products around it. */
#include "target.h"

#include <stdlib.h>

#include "kernels.h"
#include "packed.h"
#include "rows.h"
#include "tanh_backward.h"
#include "threads.h"
#include "vector_math.h"

int FASTNPLM_NAME(bias_tanh)(const struct bias_tanh *call) {
    ptrdiff_t width = call->hidden;
    int threads = threads_for(call->batch * width * 2, call->threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t b = 0; b < call->batch; b++) {
        float *row = call->values + b * width;
        ptrdiff_t h = 0;
        for (; h + LANES <= width; h += LANES)
            vector_store(row + h, vector_tanh(vector_load(row + h) + vector_load(call->bias + h)));
        if (h < width) {
            ptrdiff_t left = width - h;
            vector sum = vector_load_first(row + h, left) + vector_load_first(call->bias + h, left);
            vector_store_first(row + h, vector_tanh(sum), left);
        }
    }
    return 0;
}

int FASTNPLM_NAME(tanh_backward)(const struct tanh_backward *call) {
    ptrdiff_t runs = run_count(call->batch);
    int threads = threads_for(call->batch * call->hidden, call->threads);
    float *sums = malloc(sizeof(float) * (size_t)(runs * call->hidden + 1));
    if (!sums)
        return -1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t run = 0; run < runs; run++)
        tanh_backward_run(call, run, sums + run * call->hidden);
    add_runs(call, sums, call->hidden);
    free(sums);
    return 0;
}

int FASTNPLM_NAME(dropout)(const struct dropout *call) {
    int threads = threads_for(call->count / 4, call->threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t at = 0; at < call->count; at++) /* a dropped NaN is 0 as well */
        call->values[at] = call->mask[at] ? call->values[at] * call->scale : 0.0f;
    return 0;
}

int FASTNPLM_NAME(layer_forward)(const struct layer_forward *call) {
    ptrdiff_t panels = panel_count(call->hidden);
    float *packed = aligned_alloc(
        64, ((size_t)(packed_columns(call->hidden) * call->width) * sizeof(float) + 64) & ~63ul);
    if (!packed)
        return -1;
    struct product product = {
        .rows = call->batch,
        .columns = call->hidden,
        .depth = call->width,
        .a = call->inputs,
        .a_row = call->width,
        .a_depth = 1,
        .packed = packed,
        .out = call->values,
        .out_row = call->hidden,
        .bias = call->bias,
        .linear = call->linear,
    };
    int threads = threads_for(call->batch * call->hidden * call->width / 8, call->threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (ptrdiff_t panel = 0; panel < panels; panel++)
            FASTNPLM_NAME(pack_transposed)(call->weight, call->width, call->width,
                                                   call->hidden, panel, packed);
#pragma omp for schedule(static)
        for (ptrdiff_t block = 0; block < row_blocks(call->batch); block++)
            FASTNPLM_NAME(packed_block)(&product, block);
    }
    free(packed);
    return 0;
}

int FASTNPLM_NAME(layer_backward)(const struct layer_backward *call) {
    ptrdiff_t batch = call->batch, width = call->width, hidden = call->hidden;
    size_t columns = (size_t)packed_columns(width);
    size_t bytes = (columns * (size_t)(batch + hidden) * sizeof(float) + 64) & ~63ul;
    float *packed = aligned_alloc(64, bytes);
    if (!packed)
        return -1;
    struct tanh_backward tanh_call = {
        .values = call->linear ? NULL : call->values,
        .grad_bias = call->grad_bias,
        .grad_hidden = call->grad_hidden,
        .batch = batch,
        .hidden = hidden,
        .threads = call->threads,
    };
    if (FASTNPLM_NAME(tanh_backward)(&tanh_call)) {
        free(packed);
        return -1;
    }
    float *packed_weight = packed + columns * (size_t)batch;
    struct product of_weight = { /* grad_hidden transposed times inputs */
        .rows = hidden,
        .columns = width,
        .depth = batch,
        .a = call->grad_hidden,
        .a_row = 1,
        .a_depth = hidden,
        .packed = packed,
        .out = call->grad_weight,
        .out_row = width,
    };
    struct product of_inputs = { /* grad_hidden times weight */
        .rows = batch,
        .columns = width,
        .depth = hidden,
        .a = call->grad_hidden,
        .a_row = hidden,
        .a_depth = 1,
        .packed = packed_weight,
        .out = call->grad_inputs,
        .out_row = width,
    };
    int threads = threads_for(batch * hidden * width / 4, call->threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static) nowait
        for (ptrdiff_t panel = 0; panel < panel_count(width); panel++)
            FASTNPLM_NAME(pack_columns)(call->inputs, width, batch, width, panel, packed);
#pragma omp for schedule(static)
        for (ptrdiff_t panel = 0; panel < panel_count(width); panel++)
            FASTNPLM_NAME(pack_columns)(call->weight, width, hidden, width, panel,
                                        packed_weight);
#pragma omp for schedule(static) nowait
        for (ptrdiff_t block = 0; block < row_blocks(hidden); block++)
            FASTNPLM_NAME(packed_block)(&of_weight, block);
#pragma omp for schedule(static)
        for (ptrdiff_t block = 0; block < row_blocks(batch); block++)
            FASTNPLM_NAME(packed_block)(&of_inputs, block);
    }
    free(packed);
    return 0;
}
