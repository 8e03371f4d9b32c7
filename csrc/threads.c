/* The threads are OpenMP's: one pool for the process, started by the first large enough call. */
#include "threads.h"

#ifdef _OPENMP

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

/* A parallel region costs a few microseconds; this many operations take some ten. (.ci/sanitize
 * has every call divided.) */
#ifndef WORTH_A_REGION
#define WORTH_A_REGION 100000
#endif

/* More threads than this for each processor would only wait for one another. */
#define THREADS_A_PROCESSOR 4

static atomic_int pool_started;
static atomic_int pool_lost;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Threads do not survive a fork, but OpenMP's record of them does: the child would wait for them
 * for ever. It runs on its one thread instead, with the same results. */
static void after_fork_in_child(void) {
    if (atomic_load(&pool_started))
        atomic_store(&pool_lost, 1);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

int threads_for(ptrdiff_t operations, int asked) {
    if (asked <= 1 || operations < WORTH_A_REGION || atomic_load(&pool_lost))
        return 1;
    pthread_once(&once, watch_forks);
    atomic_store(&pool_started, 1);
    int most = THREADS_A_PROCESSOR * omp_get_num_procs();
    return asked < most ? asked : most;
}

int threads_available(void) { return 1; }

#else

int threads_for(ptrdiff_t operations, int asked) {
    (void)operations;
    (void)asked;
    return 1;
}

int threads_available(void) { return 0; }

#endif
