/* exp, tanh, sigmoid and log-sigmoid of vectors of float32, each with its bound.
 *
 * Polynomials instead of libm: vectors of libm need -ffast-math or an Intel library, and these are
 * faster. The coefficients are minimax fits (reweighted least squares on Chebyshev nodes, float64),
 * made for this file. Errors were measured against float64 libm over float32 of the whole stated
 * range, on targets with and without a fused multiply-add. NaN in gives NaN out, always.
 */
#ifndef FASTNPLM_VECTOR_MATH_H
#define FASTNPLM_VECTOR_MATH_H

#include "target.h"

/* 1.5 * 2^23: adding it leaves the nearest integer in the low bits of the sum. */
#define ROUND_SHIFT 12582912.0f

/* e^x for -inf <= x <= 60 where only the sum of many matters (softmax): below -87 the result is
 * e^-87, about 1e-38, not 0. Relative error < 2e-7 + 7e-8 |x|; e^0 is exactly 1.
 *
 * The exponent's bias rides on the rounding constant, so a shift alone makes the power of two; it
 * is multiplied in, not added to the bits, because an addition could turn NaN into a number. */
INLINE vector vector_exp_softmax(vector x) {
    x = vector_max(vector_splat(-87.0f), x);
    const vector shifted = x * 1.44269504f + (ROUND_SHIFT + 127.0f);
    const vector f = x * 1.44269504f - (shifted - (ROUND_SHIFT + 127.0f)); /* in [-0.5, 0.5] */
    const vector power = vector_from_bits(vector_bits(shifted) << 23);
    vector p = f * 1.3264727e-3f + 9.6715126e-3f; /* 2^f */
    p = p * f + 5.5507337e-2f;
    p = p * f + 2.4022242e-1f;
    p = p * f + 6.9314698e-1f;
    p = p * f + 1.0f;
    return p * power;
}

/* e^x. Relative error < 1.0e-7 where the result is a normal float (x > -87.33); below that it is
 * 0, not a denormal; above 88.72 infinity. */
INLINE vector vector_exp(vector x) {
    vector clamped = vector_min(vector_splat(89.0f), vector_max(vector_splat(-88.0f), x));
    vector shifted = clamped * 1.44269504f + ROUND_SHIFT;
    vector n = shifted - ROUND_SHIFT;
    /* ln 2 in two parts, the first with few bits, so that n times it is exact */
    vector r = clamped - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    vector p = r * 1.3814600e-3f + 8.3687169e-3f;
    p = p * r + 4.1668388e-2f;
    p = p * r + 1.66665205e-1f;
    p = p * r + 4.99999934e-1f;
    p = p * (r * r) + r + 1.0f;
    /* 2^n in two factors: n = 128 is no float's exponent, though 2^128 * p may be below infinity */
    int_vector whole = vector_bits(shifted) - int_splat(0x4b400000);
    int_vector half = whole >> 1;
    vector result = p * vector_from_bits((half + 127) << 23) *
                    vector_from_bits((whole - half + 127) << 23);
    return vector_select(x < -87.3365448f, vector_splat(0.0f), result);
}

/* e^x - 1 for 0 <= x <= 40, relative error < 1.5e-7 (also near 0): the power of two stays out of the
 * polynomial, 2^n (e^r - 1) + (2^n - 1), so small x lose nothing to the 1. */
INLINE vector vector_expm1_positive(vector x) {
    vector shifted = x * 1.44269504f + (ROUND_SHIFT + 127.0f);
    vector n = shifted - (ROUND_SHIFT + 127.0f);
    vector r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    vector power = vector_from_bits(vector_bits(shifted) << 23);
    vector p = r * 1.3946451e-3f + 8.3665839e-3f;
    p = p * r + 4.1666282e-2f;
    p = p * r + 1.66665430e-1f;
    p = p * r + 5.00000006e-1f;
    p = p * (r * r) + r;
    return power * p + (power - 1.0f);
}

/* tanh x = (e^2|x| - 1) / (e^2|x| + 1) with the sign of x: exactly odd. Relative error < 2e-7;
 * +-1 exactly from |x| = 9.02 on. */
INLINE vector vector_tanh(vector x) {
    vector magnitude = vector_min(vector_splat(9.1f), vector_abs(x));
    vector e = vector_expm1_positive(magnitude + magnitude);
    return vector_with_sign(e / (e + 2.0f), x);
}

/* log(1 + z) for 0 <= z <= 1, relative error < 2e-7: 2 artanh(z / (2 + z)). */
INLINE vector vector_log1p_unit(vector z) {
    vector t = z / (z + 2.0f);
    vector s = t * t;
    vector p = s * 2.8024459e-1f + 2.7999141e-1f;
    p = p * s + 4.0021699e-1f;
    p = p * s + 6.6666413e-1f;
    return t * 2.0f + (t * s) * p;
}

/* 1 / (1 + e^-x), relative error < 2.5e-7 for x > -87; no overflow on either side. */
INLINE vector vector_sigmoid(vector x) {
    vector z = vector_exp(-vector_abs(x));
    vector positive = 1.0f / (z + 1.0f);
    return vector_select(x < 0.0f, z * positive, positive);
}

/* log(1 / (1 + e^-x)) = min(x, 0) - log(1 + e^-|x|), relative error < 2.5e-7. */
INLINE vector vector_log_sigmoid(vector x) {
    vector tail = vector_log1p_unit(vector_exp(-vector_abs(x)));
    return vector_min(vector_splat(0.0f), x) - tail;
}

#endif
