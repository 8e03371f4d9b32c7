/* The instruction sets this library was compiled for, and which of them this processor has. */
#ifndef FASTNPLM_DISPATCH_H
#define FASTNPLM_DISPATCH_H

#include "kernels.h"

struct level {
    const char *name;
    const struct kernels *kernels;
    int supported; /* by this processor and its operating system */
    int bf16;      /* has bfloat16 products of its own */
};

/* Fills levels, from the plainest to the best, and returns how many there are (at most 4). */
int dispatch_levels(struct level *levels);

#endif
