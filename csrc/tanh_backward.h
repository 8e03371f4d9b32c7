/* The gradient of tanh's argument and its sum over examples, the bias's gradient. */
#ifndef FASTNPLM_TANH_BACKWARD_H
#define FASTNPLM_TANH_BACKWARD_H

#include "kernels.h"
#include "rows.h"

/* Sums over examples are split into runs of this many, whose sums are then added in order: the same
 * for any number of threads. */
enum { RUN = 64 };

INLINE ptrdiff_t run_count(ptrdiff_t batch) { return (batch + RUN - 1) / RUN; }

INLINE void tanh_backward_run(const struct tanh_backward *call, ptrdiff_t run, float *sums) {
    ptrdiff_t width = call->hidden;
    ptrdiff_t end = (run + 1) * RUN < call->batch ? (run + 1) * RUN : call->batch;
    memset(sums, 0, (size_t)width * sizeof(float));
    for (ptrdiff_t b = run * RUN; b < end; b++) {
        const float *value = call->values ? call->values + b * width : NULL;
        float *grad = call->grad_hidden + b * width;
        ptrdiff_t h = 0;
        for (; h + LANES <= width; h += LANES) {
            vector g = vector_load(grad + h);
            if (value) {
                vector v = vector_load(value + h);
                g *= 1.0f - v * v;
                vector_store(grad + h, g);
            }
            vector_store(sums + h, vector_load(sums + h) + g);
        }
        for (; h < width; h++) {
            if (value)
                grad[h] *= 1.0f - value[h] * value[h];
            sums[h] += grad[h];
        }
    }
}

INLINE void add_runs(const struct tanh_backward *call, const float *sums, ptrdiff_t step) {
    memset(call->grad_bias, 0, (size_t)call->hidden * sizeof(float));
    for (ptrdiff_t run = 0; run < run_count(call->batch); run++)
        row_add(call->grad_bias, sums + run * step, call->hidden);
}

#endif
