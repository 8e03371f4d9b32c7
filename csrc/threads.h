/* How many threads a kernel runs on, out of those it was allowed. */
#ifndef FASTNPLM_THREADS_H
#define FASTNPLM_THREADS_H

#include <stddef.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* The number of threads for work of so many elementary operations: 1 where the work is too small
 * to be worth waking a second thread, or where a fork has left this process without the pool's
 * threads; never far beyond the processors there are. Results do not depend on it. */
int threads_for(ptrdiff_t operations, int asked);

/* Which of a parallel region's threads this is, from 0. */
static inline int thread_number(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* How many threads the parallel region has. */
static inline int thread_count(void) {
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* Whether the build has OpenMP. */
int threads_available(void);

#endif
