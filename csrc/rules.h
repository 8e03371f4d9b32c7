/* The optimisers' rules: what one gradient does to one run of weights and of optimiser state.
 *
 *     all       w *= 1 - decay                                  (learning_rate * weight_decay)
 *     sgd       w -= lr g
 *     momentum  v = beta1 v + g;                        w -= lr v
 *     adagrad   s += g^2;                               w -= lr g / (sqrt(s) + eps)
 *     rmsprop   s = beta2 s + (1 - beta2) g^2;          w -= lr g / (sqrt(s) + eps)
 *     adam      m = beta1 m + (1 - beta1) g
 *               v = beta2 v + (1 - beta2) g^2;          w -= lr m / (correction sqrt(v) + eps)
 *
 * For Adam (Kingma and Ba 2015) the caller's lr holds 1 / (1 - beta1^t) already and correction is
 * 1 / sqrt(1 - beta2^t), so that the step number is not a kernel's business.
 */
#ifndef FASTNPLM_RULES_H
#define FASTNPLM_RULES_H

#include "target.h"

enum rule { RULE_SGD, RULE_MOMENTUM, RULE_ADAGRAD, RULE_RMSPROP, RULE_ADAM };

/* The order of the six values a caller passes. */
enum hyper { LEARNING_RATE, DECAY, EPSILON, BETA1, BETA2, CORRECTION, HYPER_COUNT };

/* Arrays of optimiser state, each as large as the parameter. */
INLINE int rule_slots(enum rule rule) {
    return rule == RULE_SGD ? 0 : rule == RULE_ADAM ? 2 : 1;
}

struct rule_values {
    float lr, keep, epsilon, beta1, rest1, beta2, rest2, correction;
};

/* 1 - beta is taken in double: 1 - 0.999f would be off by 1e-5 of itself. decays is 0 for biases. */
INLINE struct rule_values rule_values(const double *hyper, int decays) {
    struct rule_values v;
    v.lr = (float)hyper[LEARNING_RATE];
    v.keep = decays ? (float)(1.0 - hyper[DECAY]) : 1.0f;
    v.epsilon = (float)hyper[EPSILON];
    v.beta1 = (float)hyper[BETA1];
    v.rest1 = (float)(1.0 - hyper[BETA1]);
    v.beta2 = (float)hyper[BETA2];
    v.rest2 = (float)(1.0 - hyper[BETA2]);
    v.correction = (float)hyper[CORRECTION];
    return v;
}

/* One vector of each: grad in; weight, first and second (state) in and out. */
INLINE void rule_vector(const enum rule rule, const struct rule_values *v, vector grad,
                        vector *weight, vector *first, vector *second) {
    vector w = *weight * v->keep;
    if (rule == RULE_SGD) {
        w -= grad * v->lr;
    } else if (rule == RULE_MOMENTUM) {
        *first = *first * v->beta1 + grad;
        w -= *first * v->lr;
    } else if (rule == RULE_ADAGRAD) {
        *first = *first + grad * grad;
        w -= grad * v->lr / (vector_sqrt(*first) + v->epsilon);
    } else if (rule == RULE_RMSPROP) {
        *first = *first * v->beta2 + grad * grad * v->rest2;
        w -= grad * v->lr / (vector_sqrt(*first) + v->epsilon);
    } else {
        *first = *first * v->beta1 + grad * v->rest1;
        *second = *second * v->beta2 + grad * grad * v->rest2;
        w -= *first * v->lr / (vector_sqrt(*second) * v->correction + v->epsilon);
    }
    *weight = w;
}

/* The gradient is grad, or scale * grad where scaled. */
INLINE void rule_run(const enum rule rule, const struct rule_values *v, ptrdiff_t count,
                     const int scaled, float scale, const float *grad, float *weight, float *first,
                     float *second) {
    const int slots = rule_slots(rule);
    const ptrdiff_t last = count - LANES;
    const int overlaps = count % LANES != 0 && last > 0;
    vector g, w, m = {0}, s = {0}, last_w = {0}, last_m = {0}, last_s = {0};
    if (overlaps) { /* the last vector covers part of the one before it: read it before that changes */
        last_w = vector_load(weight + last);
        if (slots > 0)
            last_m = vector_load(first + last);
        if (slots > 1)
            last_s = vector_load(second + last);
    }
    ptrdiff_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        w = vector_load(weight + i);
        if (slots > 0)
            m = vector_load(first + i);
        if (slots > 1)
            s = vector_load(second + i);
        g = vector_load(grad + i);
        rule_vector(rule, v, scaled ? g * scale : g, &w, &m, &s);
        vector_store(weight + i, w);
        if (slots > 0)
            vector_store(first + i, m);
        if (slots > 1)
            vector_store(second + i, s);
    }
    if (overlaps) {
        g = vector_load(grad + last);
        rule_vector(rule, v, scaled ? g * scale : g, &last_w, &last_m, &last_s);
        vector_store(weight + last, last_w);
        if (slots > 0)
            vector_store(first + last, last_m);
        if (slots > 1)
            vector_store(second + last, last_s);
        return;
    }
    if (i == count)
        return;
    const ptrdiff_t left = count - i;
    w = vector_load_first(weight + i, left);
    if (slots > 0)
        m = vector_load_first(first + i, left);
    if (slots > 1)
        s = vector_load_first(second + i, left);
    g = vector_load_first(grad + i, left);
    rule_vector(rule, v, scaled ? g * scale : g, &w, &m, &s);
    vector_store_first(weight + i, w, left);
    if (slots > 0)
        vector_store_first(first + i, m, left);
    if (slots > 1)
        vector_store_first(second + i, s, left);
}

/* Apply rule to a contiguous run.
 *
 * grad (count,), weight (count,) changed, first and second (count,) changed: the optimiser's state,
 * as many as the rule has (see rule_slots), the others unused and possibly null. */
INLINE void apply_rule_run(enum rule rule, const struct rule_values *v, ptrdiff_t count,
                           const int scaled, float scale, const float *grad, float *weight,
                           float *first, float *second) {
#define FASTNPLM_RUN(rule)                                                                         \
    case rule:                                                                                     \
        rule_run(rule, v, count, scaled, scale, grad, weight, first, second);                      \
        break;
    switch (rule) {
        FASTNPLM_RUN(RULE_SGD)
        FASTNPLM_RUN(RULE_MOMENTUM)
        FASTNPLM_RUN(RULE_ADAGRAD)
        FASTNPLM_RUN(RULE_RMSPROP)
        FASTNPLM_RUN(RULE_ADAM)
    }
#undef FASTNPLM_RUN
}

static inline void apply_rule(enum rule rule, const struct rule_values *v, ptrdiff_t count,
                              const float *grad, float *weight, float *first, float *second) {
    apply_rule_run(rule, v, count, 0, 1.0f, grad, weight, first, second);
}

/* Apply rule to one element: a word's bias. */
INLINE void apply_rule_once(enum rule rule, const struct rule_values *v, float grad, float *weight,
                            float *first, float *second) {
    const int slots = rule_slots(rule);
    vector w = vector_splat(*weight);
    vector m = vector_splat(slots > 0 ? *first : 0.0f), s = vector_splat(slots > 1 ? *second : 0.0f);
    rule_vector(rule, v, vector_splat(grad), &w, &m, &s);
    *weight = w[0];
    if (slots > 0)
        *first = m[0];
    if (slots > 1)
        *second = s[0];
}

#endif
