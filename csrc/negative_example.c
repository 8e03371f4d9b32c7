/* Noise drawn for each example: its few rows are read once, for the scores and for the gradient of
 * hidden, while the next example's are on their way. A row that no other pair names takes its step
 * at once, while it is at hand: nobody else reads it. */
#include "negative.h"

#include <math.h>

#include "rows.h"

/* Ask for the row of pair k of an example that comes AHEAD examples later, while this one's is worked
 * on: all of an example's rows at once are more than the memory takes requests for. */
enum { AHEAD = 2 };

INLINE void prefetch_pair(const struct negative_step *call, const struct negative_workspace *w,
                          ptrdiff_t pair) {
    pair += AHEAD * (1 + call->negatives);
    if (pair >= w->items || w->words[pair] < 0)
        return;
    const ptrdiff_t word = w->words[pair];
    row_prefetch(call->output_weight + word * call->hidden, call->hidden);
    __builtin_prefetch(call->output_bias + word);
}

void FASTNPLM_NAME(negative_example)(const struct negative_step *call,
                                     const struct negative_workspace *w,
                                     const struct groups *groups, ptrdiff_t b, float *own) {
    const ptrdiff_t hidden = call->hidden, pairs = 1 + call->negatives;
    const float *values = call->values + b * hidden;
    float *grad_hidden = call->grad_hidden + b * hidden;
    const float weight = call->weights[b];
    const int_vector last = row_last_lanes(hidden);
    const int32_t *words = w->words + b * pairs;
    const int32_t *group = groups->group + b * pairs;
    float *grads = w->grads + b * pairs;

    call->losses[b] = 0.0;
    if (weight == 0.0f) {
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
            const int32_t word = words[k];
            prefetch_pair(call, w, b * pairs + k);
            if (word < 0)
                continue;
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
        for (int i = 0; i < count; i++) {
            const ptrdiff_t g = group[begin + which[i]];
            if (is_lone(groups, g))
                FASTNPLM_NAME(negative_word)(call, w, groups, g, own);
        }
    }
    call->losses[b] = loss;
}
