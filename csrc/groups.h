/* Equal ids brought together, so that a row named several times takes one step. */
#ifndef FASTNPLM_GROUPS_H
#define FASTNPLM_GROUPS_H

#include <stddef.h>
#include <stdint.h>

struct groups {
    ptrdiff_t count;   /* how many distinct ids */
    int32_t *distinct; /* (count) them, in the order they first appear */
    int32_t *group;    /* (R) for each id which of them it is */
    int32_t *start;    /* (count + 1) where each group's members begin */
    int32_t *members;  /* (R) the positions of a group's ids, ascending */
};

/* Whether a group has one member. */
static inline int is_lone(const struct groups *groups, ptrdiff_t group) {
    return groups->start[group + 1] - groups->start[group] == 1;
}

/* Bytes of workspace that group_ids needs for R ids. */
size_t groups_bytes(ptrdiff_t ids);

/* Group ids[0], ids[stride], ... (R of them; negative ones are left out: group -1, no member).
 * The result lives in workspace, 64-byte aligned, as does what making it needs. */
struct groups group_ids(const int32_t *ids, ptrdiff_t stride, ptrdiff_t count, void *workspace);

#endif
