/* The training step of the output layer: chooses the form. */
#include "softmax.h"

size_t FASTNPLM_NAME(softmax_step_scratch)(const struct softmax_step_scratch *shape) {
    return shape->precision == PRECISION_BFLOAT16 ? FASTNPLM_NAME(softmax_bf16_scratch)(shape)
                                                  : FASTNPLM_NAME(softmax_float32_scratch)(shape);
}

int FASTNPLM_NAME(softmax_step)(const struct softmax_step *step) {
    return step->precision == PRECISION_BFLOAT16 ? FASTNPLM_NAME(softmax_bf16)(step)
                                                 : FASTNPLM_NAME(softmax_float32)(step);
}
