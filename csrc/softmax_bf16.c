/* The training step with bfloat16 operands: products of rounded operands, sums and master weights
 * in float32. Kept exponentials take half the room. */
#define BF16 1
#include "softmax_form.h"

size_t FASTNPLM_NAME(softmax_bf16_scratch)(const struct softmax_step_scratch *shape) {
    return scratch_bytes(shape);
}

int FASTNPLM_NAME(softmax_bf16)(const struct softmax_step *step) { return run_step(step); }
