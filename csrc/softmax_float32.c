/* The training step with float32 operands. */
#define BF16 0
#include "softmax_form.h"

size_t FASTNPLM_NAME(softmax_float32_scratch)(const struct softmax_step_scratch *shape) {
    return scratch_bytes(shape);
}

int FASTNPLM_NAME(softmax_float32)(const struct softmax_step *step) { return run_step(step); }
