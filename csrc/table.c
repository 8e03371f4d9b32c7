/* The table of one target's kernels. */
#include "target.h"

#include "kernels.h"

extern const struct kernels FASTNPLM_NAME(kernels);

#define FASTNPLM_ENTRY(name, result) .name = FASTNPLM_NAME(name),
const struct kernels FASTNPLM_NAME(kernels) = {
    FASTNPLM_KERNELS(FASTNPLM_ENTRY) SOFTMAX_KERNELS(FASTNPLM_ENTRY)};
