/* From the token stream to contexts, and from ids to rows of a table. */
#include "target.h"

#include "kernels.h"
#include "rows.h"
#include "threads.h"

ptrdiff_t FASTNPLM_NAME(find_bad_id)(const struct find_bad_id *call) {
    const int32_t *ids = call->ids;
    uint32_t limit = call->limit > INT32_MAX ? (uint32_t)1 << 31 : (uint32_t)call->limit;
    ptrdiff_t at = 0;
    while (at < call->count) { /* block by block without a branch, then the block that is bad */
        ptrdiff_t end = at + 4096 < call->count ? at + 4096 : call->count;
        uint32_t bad = 0;
        for (ptrdiff_t r = at; r < end; r++)
            bad |= (uint32_t)ids[r] >= limit;
        if (bad) {
            while ((uint32_t)ids[at] < limit)
                at++;
            return at;
        }
        at = end;
    }
    return -1;
}

INLINE int32_t token_at(const struct form_contexts *call, ptrdiff_t position) {
    return call->narrow ? ((const uint16_t *)call->tokens)[position]
                        : ((const int32_t *)call->tokens)[position];
}

int FASTNPLM_NAME(form_contexts)(const struct form_contexts *call) {
    ptrdiff_t context = call->context;
    for (ptrdiff_t b = 0; b < call->batch; b++) {
        ptrdiff_t position = call->positions[b];
        int32_t *words = call->contexts + b * context;
        ptrdiff_t back = 1;
        call->targets[b] = token_at(call, position);
        for (; back <= context && position - back >= 0; back++) {
            int32_t word = token_at(call, position - back);
            if (word == call->end_id)
                break;
            words[context - back] = word;
        }
        for (; back <= context; back++)
            words[context - back] = call->start_id;
    }
    return 0;
}

int FASTNPLM_NAME(gather_rows)(const struct gather_rows *call) {
    ptrdiff_t dim = call->dim;
    int threads = threads_for(call->count * (dim / 4 + 8), call->threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t r = 0; r < call->count; r++) {
        if (r + ROWS_AHEAD < call->count)
            row_prefetch(call->table + call->ids[r + ROWS_AHEAD] * dim, dim);
        row_copy(call->rows + r * dim, call->table + call->ids[r] * dim, dim);
    }
    return 0;
}
