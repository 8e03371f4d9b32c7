/* Bias, softmax, loss and gradient on scores that are all there: the readable rung of the ladder
 * whose top is softmax.c. */
#include "target.h"

#include <math.h>

#include "kernels.h"
#include "threads.h"
#include "vector_math.h"

/* One example. Its maximum is taken first, so no exponential overflows; a NaN among the scores
 * goes into the sum, and the loss reports it. */
static double example(const struct softmax_cross_entropy *call, ptrdiff_t b) {
    ptrdiff_t count = call->vocabulary;
    float *row = call->logits + b * count;
    int32_t target = call->targets[b];
    float weight = call->weights[b];
    if (weight == 0.0f) {
        memset(row, 0, (size_t)count * sizeof(float));
        return 0.0;
    }
    vector highest = vector_splat(-INFINITY);
    ptrdiff_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        vector score = vector_load(row + j) + vector_load(call->bias + j);
        vector_store(row + j, score);
        highest = vector_max(score, highest);
    }
    float most = -INFINITY;
    for (; j < count; j++) {
        row[j] += call->bias[j];
        most = row[j] > most ? row[j] : most;
    }
    for (int lane = 0; lane < LANES; lane++)
        most = highest[lane] > most ? highest[lane] : most;
    float target_score = row[target] - most;
    vector sums = {0};
    for (j = 0; j + LANES <= count; j += LANES) {
        vector e = vector_exp(vector_load(row + j) - most);
        vector_store(row + j, e);
        sums += e;
    }
    if (j < count) { /* lanes beyond the row: exp gives 1 there, so they are not summed */
        vector e = vector_exp(vector_load_first(row + j, count - j) - most);
        vector_store_first(row + j, e, count - j);
        sums += vector_load_first(row + j, count - j);
    }
    float total = vector_sum(sums);
    float scale = weight / total;
    for (j = 0; j < count; j++)
        row[j] *= scale;
    row[target] = (row[target] / scale / total - 1.0f) * weight;
    return log((double)total) - (double)target_score;
}

int FASTNPLM_NAME(softmax_cross_entropy)(const struct softmax_cross_entropy *call) {
    int threads = threads_for(call->batch * call->vocabulary * 2, call->threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t b = 0; b < call->batch; b++)
        call->losses[b] = example(call, b);
    return 0;
}
