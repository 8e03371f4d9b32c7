/* Noise drawn for each example: its few rows are read once, for the scores and for the gradient of
 * hidden, while the next example's are on their way. A row that no other pair names takes its step
 * at once, while it is at hand: nobody else reads it. */
#include "negative.h"

#include <math.h>

#include "rows.h"

/* How many pairs ahead of its use a row is asked for. */
enum { PAIRS_AHEAD = 22 };

/* Where the row lies that is to be asked for while pair is worked on; there is nothing to ask for
 * beyond the last pair: then the pair's own, which is at hand. */
INLINE const char *row_ahead(const struct negative_step *call, const struct negative_workspace *w,
                             ptrdiff_t pair) {
    const ptrdiff_t later = pair + PAIRS_AHEAD;
    const ptrdiff_t word = w->words[later < w->items && w->words[later] >= 0 ? later : pair];
    __builtin_prefetch(call->output_bias + word);
    return (const char *)(call->output_weight + word * call->hidden);
}

/* Ask for the lines of a row that begin in [from, to) bytes. */
INLINE void ask(const char *row, ptrdiff_t from, ptrdiff_t to) {
    for (ptrdiff_t at = from; at < to; at += LINE)
        __builtin_prefetch(row + at);
}

void FASTNPLM_NAME(negative_example)(const struct negative_step *call,
                                     const struct negative_workspace *w,
                                     const struct groups *groups, ptrdiff_t b) {
    const ptrdiff_t hidden = call->hidden, pairs = 1 + call->negatives;
    const float *values = call->values + b * hidden;
    float *grad_hidden = call->grad_hidden + b * hidden;
    const float weight = call->weights[b];
    /* The lines of a later row are asked for little by little: some with the pair's product, some
     * with the sum, the rest with the step. The memory takes only so many requests at a time, and
     * those beyond them hold up all other work. */
    const ptrdiff_t bytes = hidden * (ptrdiff_t)sizeof(float);
    const ptrdiff_t with_dot = bytes * 2 / 5 / LINE * LINE;
    const ptrdiff_t with_step = with_dot + hidden / (TOGETHER * LANES) * LINE;
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
        const char *later[LANES], *sum_later[LANES];
        int which[LANES], count = 0;
        for (int lane = 0; lane < LANES; lane++) {
            const ptrdiff_t k = begin + lane;
            scores[lane] = -INFINITY; /* a lane without a pair: loss and gradient 0 */
            signs[lane] = 1.0f;
            if (k >= pairs)
                continue;
            const int32_t word = words[k];
            if (word < 0)
                continue;
            later[count] = row_ahead(call, w, b * pairs + k);
            ask(later[count], 0, with_dot);
            sum_later[count] = later[count] + with_dot;
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
        row_combine_ahead(grad_hidden, begin == 0, count, some, rows, hidden, sum_later);
        int lone[LANES], lones = 0; /* listed first: a branch for each is a guess for each */
        for (int i = 0; i < count; i++) {
            lone[lones] = i;
            lones += is_lone(groups, group[begin + which[i]]);
        }
        for (int i = 0; i < count; i++) {
            ask(later[i], with_step, bytes);
            __builtin_prefetch(later[i] + bytes - 1);
            if (i < lones) {
                const int j = lone[i];
                step_word(call, w, words[begin + which[j]], 1, some[j], values, some[j]);
            }
        }
    }
    call->losses[b] = loss;
}
