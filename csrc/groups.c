/* A hash table that is small because it holds the batch's ids, never the vocabulary. */
#include "groups.h"

#include <string.h>

struct entry {
    int32_t id, group;
};

static int table_bits(ptrdiff_t ids) {
    int bits = 4;
    while (((ptrdiff_t)1 << bits) < 2 * ids)
        bits++;
    return bits;
}

static size_t rounded(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

size_t groups_bytes(ptrdiff_t ids) {
    size_t list = rounded((size_t)(ids + 1) * sizeof(int32_t));
    return 4 * list + rounded(sizeof(struct entry) << table_bits(ids));
}

struct groups group_ids(const int32_t *ids, ptrdiff_t stride, ptrdiff_t count, void *workspace) {
    size_t list = rounded((size_t)(count + 1) * sizeof(int32_t));
    char *at = workspace;
    struct groups groups = {
        .distinct = (int32_t *)at,
        .group = (int32_t *)(at + list),
        .start = (int32_t *)(at + 2 * list),
        .members = (int32_t *)(at + 3 * list),
    };
    struct entry *table = (struct entry *)(at + 4 * list);
    int bits = table_bits(count);
    uint32_t mask = (uint32_t)(((uint64_t)1 << bits) - 1);
    memset(table, 0xff, sizeof(struct entry) << bits); /* group -1: free */
    memset(groups.start, 0, list);
    int32_t *size = groups.start + 1; /* of each group, until they are summed */
    int32_t found = 0;
    for (ptrdiff_t r = 0; r < count; r++) {
        int32_t id = ids[r * stride];
        if (id < 0) {
            groups.group[r] = -1;
            continue;
        }
        uint32_t slot = (uint32_t)(((uint32_t)id * (uint64_t)0x9E3779B97F4A7C15u) >> (64 - bits));
        /* Whether an id is new is anyone's guess, so no branch hangs on it: the loop goes on past
         * another's entry (group >> 31 is -1 for a free one), and new or not the work is the same. */
        while ((table[slot].id ^ id) & ~(table[slot].group >> 31))
            slot = (slot + 1) & mask;
        int32_t seen = table[slot].group;
        int32_t group = seen < 0 ? found : seen;
        table[slot] = (struct entry){id, group};
        groups.distinct[found] = id; /* overwritten unless it is new */
        found += seen < 0;
        groups.group[r] = group;
        size[group]++;
    }
    groups.count = found;
    /* start[g + 1] holds g's size: turn it into where g begins, then let it walk to g's end */
    int32_t total = 0;
    for (int32_t g = 0; g < found; g++) {
        int32_t mine = size[g];
        size[g] = total;
        total += mine;
    }
    for (ptrdiff_t r = 0; r < count; r++)
        if (groups.group[r] >= 0)
            groups.members[size[groups.group[r]]++] = (int32_t)r;
    return groups;
}
