/* Noise drawn for each example: its few rows are read once, for the scores and for the gradient of
 * hidden, while the next example's are on their way. */
#include "negative.h"

#include <math.h>

#include "rows.h"

/* Ask for the row of pair k of an example that comes AHEAD examples later, while this one's is worked
 * on: all of an example's rows at once are more than the memory takes requests for. */
enum { AHEAD = 2 };

INLINE void prefetch_pair(const struct negative_step *call, ptrdiff_t b, ptrdiff_t k) {
    b += AHEAD;
    if (b >= call->batch)
        return;
    const ptrdiff_t word =
        k == 0 ? call->targets[b] : call->noise[b / call->block * call->negatives + k - 1];
    row_prefetch(call->output_weight + word * call->hidden, call->hidden);
    __builtin_prefetch(call->output_bias + word);
}

void FASTNPLM_NAME(negative_example)(const struct negative_step *call,
                                     const struct negative_workspace *w, ptrdiff_t b) {
    const ptrdiff_t hidden = call->hidden, pairs = 1 + call->negatives;
    const float *values = call->values + b * hidden;
    float *grad_hidden = call->grad_hidden + b * hidden;
    const int32_t *noise = call->noise + b / call->block * call->negatives;
    const int32_t target = call->targets[b];
    const float weight = call->weights[b];
    const int_vector last = row_last_lanes(hidden);
    int32_t *words = w->words + b * pairs;
    float *grads = w->grads + b * pairs;

    call->losses[b] = 0.0;
    if (weight == 0.0f) {
        for (ptrdiff_t k = 0; k < pairs; k++)
            words[k] = -1;
        memset(grad_hidden, 0, (size_t)hidden * sizeof(float));
        return;
    }
    double loss = 0.0;
    for (ptrdiff_t begin = 0; begin < pairs; begin += LANES) { /* a vector of pairs at a time */
        const float *rows[LANES];
        float scores[LANES], signs[LANES], some[LANES];
        int which[LANES], count = 0;
        for (int lane = 0; lane < LANES; lane++) {
            const ptrdiff_t k = begin + lane;
            scores[lane] = -INFINITY; /* a lane without a pair: loss and gradient 0 */
            signs[lane] = 1.0f;
            if (k >= pairs)
                continue;
            const int32_t word = k == 0 ? target : noise[k - 1];
            words[k] = -1;
            prefetch_pair(call, b, k);
            if (k > 0 && call->skip_target && word == target)
                continue;
            words[k] = word;
            const float *row = call->output_weight + word * hidden;
            float score = row_dot(values, row, hidden, last) + call->output_bias[word];
            if (call->offsets)
                score -= call->offsets[word];
            signs[lane] = k == 0 ? -1.0f : 1.0f;
            scores[lane] = score * signs[lane];
            which[count] = lane;
            rows[count++] = row;
        }
        const vector score = vector_load(scores);
        vector_store(scores, noise_grad(score) * vector_load(signs) * weight);
        vector_store(signs, noise_loss(score));
        for (int i = 0; i < count; i++) {
            some[i] = grads[begin + which[i]] = scores[which[i]];
            loss += (double)signs[which[i]];
        }
        row_combine(grad_hidden, begin == 0, count, some, rows, hidden);
    }
    call->losses[b] = loss;
}
