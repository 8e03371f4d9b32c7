/* Makes the n-th call that changes the disk fail, or ends the process there; see faults.py.
   Preloaded with LD_PRELOAD. Calls count only while armed, and only in the thread that armed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { ONCE, FROM_HERE_ON, HALF_WRITTEN, KILL };

static long at, seen;
static int how, with_errno, armed;

long fault_disarm(void) {
    armed = 0;
    return seen;
}

/* The at-th call (from 1; 0: none, only count) meets its fault. */
void fault_arm(long at_, int how_, int errno_) {
    at = at_, how = how_, with_errno = errno_, seen = 0, armed = 1;
}

/* Whether this call is to fail; takes_room says that it needs space on the disk. */
static int due(int takes_room) {
    if (!armed) return 0;
    ++seen;
    if (seen == at && how == KILL) kill(getpid(), SIGKILL);
    if (seen == at || (how == FROM_HERE_ON && at && seen > at && takes_room)) {
        errno = with_errno;
        return 1;
    }
    return 0;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define WRAP(type, name, takes_room, declared, passed, ...)  \
    type name declared {                                      \
        if (due(takes_room)) return -1;                       \
        return REAL(type, name, __VA_ARGS__) passed;          \
    }

WRAP(int, fsync, 1, (int fd), (fd), int)
WRAP(int, fdatasync, 1, (int fd), (fd), int)
WRAP(int, rename, 0, (const char *a, const char *b), (a, b), const char *, const char *)
WRAP(int, renameat, 0, (int c, const char *a, int d, const char *b), (c, a, d, b), int,
     const char *, int, const char *)
WRAP(int, mkdir, 1, (const char *a, mode_t m), (a, m), const char *, mode_t)
WRAP(int, unlink, 0, (const char *a), (a), const char *)
WRAP(int, rmdir, 0, (const char *a), (a), const char *)
WRAP(int, unlinkat, 0, (int d, const char *a, int f), (d, a, f), int, const char *, int)
WRAP(int, ftruncate64, 1, (int fd, off64_t n), (fd, n), int, off64_t)
WRAP(int, posix_fallocate64, 1, (int fd, off64_t n, off64_t m), (fd, n, m), int, off64_t, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    int fails = fd > 2 && due(1);
    if (fails && how == HALF_WRITTEN && size > 1) {
        errno = 0;
        size /= 2;
    } else if (fails) {
        return -1;
    }
    return REAL(ssize_t, write, int, const void *, size_t)(fd, data, size);
}

#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        va_list rest;                                                           \
        va_start(rest, flags);                                                  \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;               \
        va_end(rest);                                                           \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT) && due(1)) return -1;         \
        return REAL(int, name, const char *, int, ...)(path, flags, mode);      \
    }
OPEN(open)
OPEN(open64)
