/* An optimiser's step on the rows a batch names, or on a whole parameter. */
#include "target.h"

#include <stdlib.h>

#include "groups.h"
#include "kernels.h"
#include "rows.h"
#include "threads.h"

int FASTNPLM_NAME(scatter_update)(const struct scatter_update *call) {
    ptrdiff_t dim = call->dim;
    const struct rule_values values = rule_values(call->hyper, 1);
    int threads = threads_for(call->count * (dim + 16), call->threads);
    size_t row_bytes = ((size_t)dim * sizeof(float) + 63) & ~(size_t)63;
    size_t bytes = groups_bytes(call->count);
    char *workspace = aligned_alloc(64, bytes + (size_t)threads * row_bytes);
    if (!workspace)
        return -1;
    struct groups groups = group_ids(call->ids, 1, call->count, workspace);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *sum = (float *)(workspace + bytes + (size_t)thread_number() * row_bytes);
#pragma omp for schedule(static)
        for (ptrdiff_t g = 0; g < groups.count; g++) {
            if (g + ROWS_AHEAD < groups.count)
                row_prefetch(call->table + groups.distinct[g + ROWS_AHEAD] * dim, dim);
            const float *grad = call->grads + groups.members[groups.start[g]] * dim;
            ptrdiff_t more = groups.start[g + 1] - groups.start[g];
            if (more > 1) { /* a row named once needs no copy of its gradient */
                row_copy(sum, grad, dim);
                for (ptrdiff_t m = groups.start[g] + 1; m < groups.start[g + 1]; m++)
                    row_add(sum, call->grads + groups.members[m] * dim, dim);
                grad = sum;
            }
            ptrdiff_t at = groups.distinct[g] * dim;
            float *first = call->slots + at;
            apply_rule(call->rule, &values, dim, grad, call->table + at, first,
                       first + call->vocabulary * dim);
        }
    }
    free(workspace);
    return 0;
}

int FASTNPLM_NAME(dense_update)(const struct dense_update *call) {
    enum { BLOCK = 4096 }; /* elements: the first of each is where a full vector begins, always */
    const struct rule_values values = rule_values(call->hyper, 1);
    int threads = threads_for(call->count / 2, call->threads);
    ptrdiff_t blocks = (call->count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t block = 0; block < blocks; block++) {
        ptrdiff_t at = block * BLOCK;
        ptrdiff_t size = call->count - at < BLOCK ? call->count - at : BLOCK;
        float *first = call->slots + at;
        apply_rule(call->rule, &values, size, call->grad + at, call->parameter + at, first,
                   first + call->count);
    }
    return 0;
}
