#if defined(__linux__)
#define _DEFAULT_SOURCE /* madvise */
#endif
#include "lexicon.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__GNUC__)
/* Always inlined: gcc takes a function that only prefetches for one that does nothing. */
#define PREFETCHING static inline __attribute__((always_inline))
#define PREFETCH(place) __builtin_prefetch(place)
#else
#define PREFETCHING static inline
#define PREFETCH(place) ((void)(place))
#endif
#define LARGE_PAGE ((size_t)1 << 21)
#define MAX_WORDS ((size_t)INT32_MAX)

/* ---- keys ------------------------------------------------------------------------------- */

enum { OWN_KEY = 16 }; /* up to so many bytes a word is its own key */

static inline uint64_t load8(const char *place) {
    uint64_t value;
    memcpy(&value, place, 8);
    return value;
}

static inline uint64_t scramble(uint64_t value) {
    value ^= value >> 32;
    value *= 0x9E3779B97F4A7C15u;
    value ^= value >> 29;
    return value * 0xBF58476D1CE4E5B9u;
}

static uint64_t hash_long(const char *word, size_t length) {
    uint64_t hash = length;
    size_t place = 0;
    for (; place + 8 <= length; place += 8) hash = scramble(hash ^ load8(word + place)) + place;
    return scramble(hash ^ load8(word + length - 8));
}

/* `room`: how many bytes may be read from `word` on. The second part of a long word's key is
 * filled in when it gets its place. */
static inline word_key key_of(const char *word, size_t length, ptrdiff_t room) {
    word_key key = {{0, 0}};
    if (length > OWN_KEY) {
        key.part[0] = hash_long(word, length);
        return key;
    }
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (length <= 8 && room >= 8) {
        key.part[0] = load8(word) & (~(uint64_t)0 >> (64 - 8 * length));
        return key;
    }
    if (length > 8) {
        key.part[0] = load8(word);
        key.part[1] = load8(word + length - 8) >> 8 * (OWN_KEY - length);
        return key;
    }
#endif
    (void)room;
    memcpy(&key, word, length);
    return key;
}

static inline uint64_t spread(word_key key, size_t length) {
    return scramble(key.part[0] ^ (length > OWN_KEY ? 0 : key.part[1] * 0xD6E8FEB86659FD93u));
}

/* There are at most 2^32 slots: MAX_WORDS of them in use, and half as many more. */
static inline uint32_t hash_of(word_key key, size_t length) {
    return (uint32_t)(spread(key, length) >> 20);
}

static inline size_t home(uint32_t hash, size_t slot_count) { return hash & (slot_count - 1); }

/* ---- memory ----------------------------------------------------------------------------- */

/* Zeroed memory, a power of two bytes. Much of it is on large pages where the system has them: a
 * table is read at random places, and looking up the page took most of the time of it. */
static void *new_memory(size_t bytes) {
#if defined(__linux__)
    if (bytes >= LARGE_PAGE) { /* such pages begin at multiples of their size */
        char *room = mmap(NULL, bytes + LARGE_PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) return NULL;
        size_t before = (LARGE_PAGE - (uintptr_t)room % LARGE_PAGE) % LARGE_PAGE;
        if (before) munmap(room, before);
        if (before < LARGE_PAGE) munmap(room + before + bytes, LARGE_PAGE - before);
        madvise(room + before, bytes, MADV_HUGEPAGE);
        return room + before;
    }
#endif
    return calloc(bytes, 1);
}

static void give_back(void *memory, size_t bytes) {
#if defined(__linux__)
    if (bytes >= LARGE_PAGE) {
        munmap(memory, bytes);
        return;
    }
#endif
    (void)bytes;
    free(memory);
}

#define SEGMENT_BYTES (WORDS_A_SEGMENT * sizeof(known_word))

/* ---- the table -------------------------------------------------------------------------- */

int lexicon_begin(lexicon *table) {
    memset(table, 0, sizeof *table);
    table->slot_count = 1024;
    table->slots = new_memory(table->slot_count * sizeof(slot));
    return table->slots ? TEXT_OK : TEXT_NO_MEMORY;
}

void lexicon_end(lexicon *table) {
    if (table->slots) give_back(table->slots, table->slot_count * sizeof(slot));
    for (size_t segment = 0; segment < table->segments; segment++)
        give_back(table->known[segment], SEGMENT_BYTES);
    free(table->known);
    free(table->letters);
    memset(table, 0, sizeof *table);
}

size_t lexicon_memory(const lexicon *table) {
    return table->slot_count * sizeof(slot) + table->words * sizeof(known_word) +
           table->letter_room;
}

static inline const char *word_of(const lexicon *table, const known_word *known) {
    return known->length > OWN_KEY ? table->letters + known->key[1] : (const char *)known->key;
}

const char *lexicon_word(const lexicon *table, int32_t id, size_t *length) {
    const known_word *known = known_of(table, (size_t)id);
    *length = known->length;
    return word_of(table, known);
}

void lexicon_counts(const lexicon *table, int64_t *counts) {
    for (size_t id = 0; id < table->words; id++) counts[id] = known_of(table, id)->count;
}

void lexicon_ends(const lexicon *table, int64_t *ends) {
    int64_t end = 0;
    for (size_t id = 0; id < table->words; id++) ends[id] = end += known_of(table, id)->length;
}

/* The slot that holds the word, or the free one where it belongs. */
static inline slot *look(const lexicon *table, const char *word, size_t length, word_key key,
                         uint32_t hash) {
    size_t place = home(hash, table->slot_count);
    for (;; place = (place + 1) & (table->slot_count - 1)) {
        slot *at = table->slots + place;
        if (at->number == 0) return at;
        if (at->hash != hash) continue;
        const known_word *known = known_of(table, at->number - 1);
        if (known->length != (uint32_t)length || known->key[0] != key.part[0]) continue;
        if (length <= OWN_KEY) {
            if (known->key[1] == key.part[1]) return at;
        } else if (memcmp(table->letters + known->key[1], word, length) == 0) {
            return at;
        }
    }
}

static int grow_slots(lexicon *table) {
    size_t count = table->slot_count * 2;
    slot *grown = new_memory(count * sizeof(slot));
    if (!grown) return TEXT_NO_MEMORY;
    for (size_t old = 0; old < table->slot_count; old++) {
        const slot *from = table->slots + old;
        if (from->number == 0) continue;
        size_t place = home(from->hash, count);
        while (grown[place].number) place = (place + 1) & (count - 1);
        grown[place] = *from;
    }
    give_back(table->slots, table->slot_count * sizeof(slot));
    table->slots = grown;
    table->slot_count = count;
    return TEXT_OK;
}

/* Give the word the next id and a slot; *at, where `look` found it missing, becomes that slot. */
static int insert(lexicon *table, const char *word, size_t length, word_key key, uint32_t hash,
                  slot **at) {
    if (table->words == MAX_WORDS) return TEXT_NO_MEMORY;
    if (table->words >> SEGMENT_BITS == table->segments) {
        known_word **known = realloc(table->known, (table->segments + 1) * sizeof *known);
        if (!known) return TEXT_NO_MEMORY;
        table->known = known;
        known[table->segments] = new_memory(SEGMENT_BYTES);
        if (!known[table->segments]) return TEXT_NO_MEMORY;
        table->segments++;
    }
    if (length > OWN_KEY) {
        if (table->letters_used + length > table->letter_room) {
            size_t room = table->letter_room * 2 + length + 8192;
            char *letters = realloc(table->letters, room);
            if (!letters) return TEXT_NO_MEMORY;
            table->letters = letters;
            table->letter_room = room;
        }
        memcpy(table->letters + table->letters_used, word, length);
        key.part[1] = table->letters_used;
        table->letters_used += length;
    }
    if ((table->words + 1) * 3 > table->slot_count * 2) {
        if (grow_slots(table)) return TEXT_NO_MEMORY;
        *at = look(table, word, length, key, hash);
    }
    *known_of(table, table->words) = (known_word){{key.part[0], key.part[1]}, 0, (uint32_t)length};
    table->words++;
    **at = (slot){hash, (uint32_t)table->words};
    return TEXT_OK;
}

void lexicon_find(const lexicon *table, const char *letters, const int64_t *ends, ptrdiff_t words,
                  int32_t *ids) {
    for (ptrdiff_t number = 0; number < words; number++) {
        const char *word = letters + (number ? ends[number - 1] : 0);
        size_t length = (size_t)(letters + ends[number] - word);
        word_key key = key_of(word, length, 0);
        ids[number] = (int32_t)look(table, word, length, key, hash_of(key, length))->number - 1;
    }
}

/* Words whose slots are fetched together, before the first of them is looked up. */
enum { TOGETHER = 32 };

int lexicon_add(lexicon *table, const char *letters, const int64_t *ends, const int64_t *counts,
                ptrdiff_t words, int64_t least, uint64_t part, uint64_t parts, int32_t *ids) {
    word_key keys[TOGETHER];
    uint32_t hashes[TOGETHER];
    const char *all = words ? letters + ends[words - 1] : letters;
    for (ptrdiff_t first = 0; first < words; first += TOGETHER) {
        ptrdiff_t stop = words - first < TOGETHER ? words : first + TOGETHER;
        const char *begin = letters + (first ? ends[first - 1] : 0);
        const char *word = begin;
        for (ptrdiff_t number = first; number < stop; number++) {
            size_t length = (size_t)(letters + ends[number] - word);
            keys[number - first] = key_of(word, length, all - word);
            hashes[number - first] = hash_of(keys[number - first], length);
            PREFETCH(table->slots + home(hashes[number - first], table->slot_count));
            word += length;
        }
        for (ptrdiff_t number = first; number < stop; number++) {
            uint32_t hash = hashes[number - first];
            const slot *at = table->slots + home(hash, table->slot_count);
            if (at->hash == hash && at->number) PREFETCH(known_of(table, at->number - 1));
        }
        word = begin;
        for (ptrdiff_t number = first; number < stop; number++) {
            size_t length = (size_t)(letters + ends[number] - word);
            word_key key = keys[number - first];
            uint32_t hash = hashes[number - first];
            ids[number] = -1;
            /* Other bits than those that choose the slot, or a part would crowd a few slots. */
            if (parts == 1 || (spread(key, length) & 0xFFFFF) % parts == part) {
                slot *at = look(table, word, length, key, hash);
                if (at->number == 0 && counts[number] >= least &&
                    insert(table, word, length, key, hash, &at))
                    return TEXT_NO_MEMORY;
                if (at->number) {
                    ids[number] = (int32_t)at->number - 1;
                    known_of(table, at->number - 1)->count += counts[number];
                }
            }
            word += length;
        }
    }
    return TEXT_OK;
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Bit i is set where text[i] separates, for 64 bytes. Both loops become vector code as they are. */
static inline uint64_t separators(const unsigned char *text) {
    unsigned char is[64];
    for (int i = 0; i < 64; i++) {
        unsigned char c = text[i];
        is[i] = (unsigned char)((c == ' ') | (c == 0) | ((unsigned char)(c - 9) < 5));
    }
    uint64_t mask = 0;
    for (int i = 0; i < 8; i++) {
        /* Eight bytes of 0 or 1 become eight bits; byte order is put right where it differs. */
        uint64_t bytes = load8((const char *)is + 8 * i);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        bytes = __builtin_bswap64(bytes);
#endif
        mask |= ((bytes * 0x0102040810204080u) >> 56) << (8 * i);
    }
    return mask;
}

static inline int lowest_bit(uint64_t mask) {
#if defined(__GNUC__)
    return __builtin_ctzll(mask);
#else
    int bit = 0;
    while (!(mask >> bit & 1)) bit++;
    return bit;
#endif
}

typedef struct {
    lexicon *table;
    const reading *how;
    int32_t *ids;
    tally *seen;
    ptrdiff_t sentence; /* where the open sentence begins in ids */
    int line_words;     /* whether the line had a word */
} reader;

static void end_sentence(reader *r) {
    if (r->seen->tokens > r->sentence) {
        r->ids[r->seen->tokens++] = r->how->end;
        r->seen->sentences++;
    }
    r->sentence = r->seen->tokens;
}

static void end_line(reader *r) {
    if (r->line_words) {
        end_sentence(r);
    } else {
        r->seen->blank_lines++;
        r->seen->ends_first |= r->seen->lines == 0;
    }
    r->line_words = 0;
    r->seen->lines++;
}

static int take_reserved(reader *r, int32_t id) {
    r->seen->reserved++;
    if (r->how->reserved == RESERVED_WHITESPACE) return TEXT_OK;
    int open = r->seen->tokens > r->sentence;
    if (r->how->reserved == RESERVED_REJECT || (id == r->how->start && open)) return TEXT_RESERVED;
    if (id == r->how->end && open) end_sentence(r);
    return TEXT_OK;
}

static inline int take_word(reader *r, const char *word, size_t length, word_key key,
                            uint32_t hash) {
    slot *at = look(r->table, word, length, key, hash);
    int32_t id = (int32_t)at->number - 1;
    int counted = 1;
    if (id < 0) {
        if (r->how->fixed) {
            id = r->how->unknown;
            if (id < 0) return TEXT_UNKNOWN;
            counted = 0;
        } else {
            if (insert(r->table, word, length, key, hash, &at)) return TEXT_NO_MEMORY;
            id = (int32_t)at->number - 1;
        }
    }
    if (id == r->how->start || id == r->how->end) return take_reserved(r, id);
    known_of(r->table, (size_t)id)->count += counted;
    r->ids[r->seen->tokens++] = id;
    r->line_words = 1;
    return TEXT_OK;
}

/* U+0085, U+00A0, U+1680, U+2000..200A, U+2028, U+2029, U+202F, U+205F, U+3000 */
static int wide_space(const unsigned char *c, size_t length) {
    if (length == 2) return c[0] == 0xC2 && (c[1] == 0x85 || c[1] == 0xA0);
    if (length != 3) return 0;
    if (c[0] == 0xE1) return c[1] == 0x9A && c[2] == 0x80;
    if (c[0] == 0xE3) return c[1] == 0x80 && c[2] == 0x80;
    if (c[0] != 0xE2) return 0;
    if (c[1] == 0x81) return c[2] == 0x9F;
    return c[1] == 0x80 && (c[2] <= 0x8A || c[2] == 0xA8 || c[2] == 0xA9 || c[2] == 0xAF);
}

static int take_whole(reader *r, const char *word, size_t length) {
    word_key key = key_of(word, length, 0);
    return take_word(r, word, length, key, hash_of(key, length));
}

static int is_reserved(const char *word, size_t length) {
    return (length == 3 && memcmp(word, "<s>", 3) == 0) ||
           (length == 4 && memcmp(word, "</s>", 4) == 0) ||
           (length == 5 && memcmp(word, "<unk>", 5) == 0);
}

static int take_characters(reader *r, const char *word, size_t length) {
    /* A reserved word that stands by itself is not spelled out. */
    if (is_reserved(word, length)) return take_whole(r, word, length);
    const char *stop = word + length;
    while (word < stop) {
        unsigned char c = (unsigned char)*word;
        size_t bytes = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        if (!wide_space((const unsigned char *)word, bytes)) {
            int code = take_whole(r, word, bytes);
            if (code) return code;
        }
        word += bytes;
    }
    return TEXT_OK;
}

/* A word's slot is fetched so many words before it is needed, and then what the slot points to. */
enum { AHEAD = 64, KNOWN_AHEAD = 24 };

PREFETCHING void fetch(const lexicon *table, const found_word *found, size_t i, size_t count) {
    if (i + AHEAD < count)
        PREFETCH(table->slots + home(found[i + AHEAD].hash, table->slot_count));
    if (i + KNOWN_AHEAD < count) {
        uint32_t hash = found[i + KNOWN_AHEAD].hash;
        const slot *at = table->slots + home(hash, table->slot_count);
        if (at->hash == hash && at->number) PREFETCH(known_of(table, at->number - 1));
    }
}

static int take_found(reader *r, const char *text, const found_word *found, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int code = TEXT_OK;
        fetch(r->table, found, i, count);
        if (found[i].length == 0)
            end_line(r);
        else if (r->how->characters)
            code = take_characters(r, text + found[i].begin, found[i].length);
        else
            code = take_word(r, text + found[i].begin, found[i].length, found[i].key,
                             found[i].hash);
        if (code) {
            r->seen->position = found[i].begin;
            return code;
        }
    }
    return TEXT_OK;
}

/* Find the next words of a block; after an error *position is where. */
static int find_words(words *w, const char *text, ptrdiff_t size, ptrdiff_t *position) {
    ptrdiff_t begin = w->begin; /* of the word being read */
    ptrdiff_t chunk = w->next;
    size_t count = 0;
    /* A chunk of 64 bytes has at most 64 separators, with a word and a line end each. */
    for (; chunk < size && count + 128 <= WORDS_TOGETHER; chunk += 64) {
        unsigned char last[64];
        const unsigned char *bytes = (const unsigned char *)text + chunk;
        if (size - chunk < 64) {
            memset(last, 'x', sizeof last); /* what is beyond the text separates nothing */
            memcpy(last, bytes, (size_t)(size - chunk));
            bytes = last;
        }
        for (uint64_t mask = separators(bytes); mask; mask &= mask - 1) {
            ptrdiff_t place = chunk + lowest_bit(mask);
            size_t length = (size_t)(place - begin);
            if (length > UINT32_MAX) {
                *position = begin;
                return TEXT_TOO_LONG;
            }
            if (length) {
                word_key key = key_of(text + begin, length, size - begin);
                uint32_t hash = hash_of(key, length);
                w->found[count++] = (found_word){begin, key, (uint32_t)length, hash};
            }
            if (text[place] == '\n') w->found[count++] = (found_word){place, {{0, 0}}, 0, 0};
            begin = place + 1;
        }
    }
    w->begin = begin;
    w->next = chunk;
    w->count = count;
    return TEXT_OK;
}

int lexicon_read(lexicon *table, words *w, const char *text, ptrdiff_t size, const reading *how,
                 int32_t *ids, tally *seen) {
    reader r = {table, how, ids, seen, 0, 0};
    memset(seen, 0, sizeof *seen);
    seen->position = utf8_check(text, size);
    if (seen->position < size) return TEXT_BAD_UTF8;
    for (w->next = w->begin = 0; w->next < size;) {
        int code = find_words(w, text, size, &seen->position);
        if (code) return code;
        code = take_found(&r, text, w->found, w->count);
        if (code) return code;
    }
    seen->open_words = seen->tokens > r.sentence;
    return TEXT_OK;
}

/* ---- order ------------------------------------------------------------------------------ */

typedef struct {
    uint64_t count;
    uint64_t begins; /* the first bytes, the first one highest: most words differ there */
    int32_t id;
} entry;

static inline uint64_t first_bytes(const lexicon *table, const known_word *known) {
    uint64_t begins;
    memcpy(&begins, word_of(table, known), 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    begins = __builtin_bswap64(begins);
#endif
    return begins;
}

/* Sort by some bits of `begins` (rising) or of `count` (falling), equal ones as they stand. */
enum { DIGIT = 12, DIGITS = 1 << DIGIT, BEGINS_SORTED = 4 * DIGIT };

static inline size_t digit_of(const entry *of, int by_count, int shift) {
    return ((by_count ? ~of->count : of->begins) >> shift) & (DIGITS - 1);
}

static void sort_by_digit(const entry *from, entry *to, size_t size, int by_count, int shift) {
    size_t place[DIGITS] = {0}, before = 0;
    for (size_t i = 0; i < size; i++) place[digit_of(from + i, by_count, shift)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        size_t here = place[digit];
        place[digit] = before;
        before += here;
    }
    for (size_t i = 0; i < size; i++) to[place[digit_of(from + i, by_count, shift)]++] = from[i];
}

static int compare(const lexicon *table, const entry *a, const entry *b) {
    size_t left, right;
    const char *ours = lexicon_word(table, a->id, &left);
    const char *theirs = lexicon_word(table, b->id, &right);
    int sign = memcmp(ours, theirs, left < right ? left : right);
    return sign ? sign : left < right ? -1 : left > right;
}

/* Heap sort of words that agree in count and first bytes: needs no memory and has no bad case. */
static void sort_words(const lexicon *table, entry *words, size_t size) {
    for (size_t start = size / 2, end = size; end > 1;) {
        if (start) {
            start--;
        } else {
            entry last = words[--end];
            words[end] = words[0];
            words[0] = last;
        }
        entry moved = words[start];
        size_t root = start, child;
        while ((child = 2 * root + 1) < end) {
            if (child + 1 < end && compare(table, words + child, words + child + 1) < 0) child++;
            if (compare(table, &moved, words + child) >= 0) break;
            words[root] = words[child];
            root = child;
        }
        words[root] = moved;
    }
}

int lexicon_order(const lexicon *table, int32_t first, int64_t least, int32_t *order,
                  ptrdiff_t *found) {
    size_t kept = 0, next = 0;
    uint64_t highest = 0;
    for (size_t id = (size_t)first; id < table->words; id++)
        kept += known_of(table, id)->count >= least;
    entry *entries = malloc((kept ? kept : 1) * 2 * sizeof *entries), *spare = entries + kept;
    if (!entries) return TEXT_NO_MEMORY;
    for (size_t id = (size_t)first; id < table->words; id++) {
        const known_word *known = known_of(table, id);
        if (known->count < least) continue;
        entries[next++] = (entry){(uint64_t)known->count, first_bytes(table, known), (int32_t)id};
        highest |= (uint64_t)known->count;
    }
    entry *sorted = entries;
    /* The last digits first: of the first bytes, then of the count. */
    int of_begins = BEGINS_SORTED / DIGIT, step = 0;
    for (; step < of_begins || highest >> (step - of_begins) * DIGIT; step++) {
        int by_count = step >= of_begins;
        int shift = by_count ? (step - of_begins) * DIGIT : 64 - BEGINS_SORTED + step * DIGIT;
        sort_by_digit(sorted, spare, kept, by_count, shift);
        entry *other = sorted;
        sorted = spare;
        spare = other;
        if (by_count && shift + DIGIT >= 64) break;
    }
    for (size_t begin = 0, end; begin < kept; begin = end) {
        uint64_t begins = sorted[begin].begins >> (64 - BEGINS_SORTED);
        for (end = begin + 1; end < kept && sorted[end].count == sorted[begin].count &&
                              sorted[end].begins >> (64 - BEGINS_SORTED) == begins;)
            end++;
        sort_words(table, sorted + begin, end - begin);
    }
    for (size_t place = 0; place < kept; place++)
        order[place] = sorted[place].id;
    free(entries);
    *found = (ptrdiff_t)kept;
    return TEXT_OK;
}

/* ---- words as lines --------------------------------------------------------------------- */

static size_t digits_of(int64_t number, char *last) {
    size_t count = 0;
    do {
        last[-(ptrdiff_t)count++] = (char)('0' + number % 10);
    } while (number /= 10);
    return count;
}

size_t lexicon_lines(const lexicon *table, const int32_t *ids, const int64_t *counts,
                     ptrdiff_t size, char *out) {
    char *start = out;
    for (ptrdiff_t i = 0; i < size; i++) {
        const known_word *known = known_of(table, (size_t)ids[i]);
        memcpy(out, word_of(table, known), known->length);
        out += known->length;
        if (counts) {
            char digits[20];
            size_t many = digits_of(counts[i], digits + 19);
            *out++ = '\t';
            memcpy(out, digits + 20 - many, many);
            out += many;
        }
        *out++ = '\n';
    }
    return (size_t)(out - start);
}

/* ---- final ids -------------------------------------------------------------------------- */

#define RECODE(name, type)                                                                        \
    ptrdiff_t name(const int32_t *ids, ptrdiff_t size, const int32_t *table, ptrdiff_t words,     \
                   int32_t wanted, type *out, ptrdiff_t *met) {                                   \
        ptrdiff_t found = 0;                                                                      \
        for (ptrdiff_t i = 0; i < size; i++) {                                                    \
            if (ids[i] < 0 || ids[i] >= words) return i;                                          \
            int32_t id = table[ids[i]];                                                           \
            found += id == wanted;                                                                \
            out[i] = (type)id;                                                                    \
        }                                                                                         \
        *met = found;                                                                             \
        return size;                                                                              \
    }
RECODE(recode_16, uint16_t)
RECODE(recode_32, int32_t)

/* ---- UTF-8 ------------------------------------------------------------------------------ */

ptrdiff_t utf8_check(const char *text, ptrdiff_t size) {
    const unsigned char *c = (const unsigned char *)text;
    ptrdiff_t i = 0;
    while (i < size) {
        if (c[i] < 0x80) {
            while (i + 8 <= size && !(load8(text + i) & 0x8080808080808080u)) i += 8;
            while (i < size && c[i] < 0x80) i++;
            continue;
        }
        unsigned low = 0x80, high = 0xBF; /* what the second byte may be */
        ptrdiff_t more;
        if (c[i] >= 0xC2 && c[i] <= 0xDF) {
            more = 1;
        } else if (c[i] >= 0xE0 && c[i] <= 0xEF) {
            more = 2;
            if (c[i] == 0xE0) low = 0xA0;
            if (c[i] == 0xED) high = 0x9F; /* surrogates */
        } else if (c[i] >= 0xF0 && c[i] <= 0xF4) {
            more = 3;
            if (c[i] == 0xF0) low = 0x90;
            if (c[i] == 0xF4) high = 0x8F; /* beyond U+10FFFF */
        } else {
            return i;
        }
        if (i + more >= size || c[i + 1] < low || c[i + 1] > high) return i;
        for (ptrdiff_t k = 2; k <= more; k++)
            if ((c[i + k] & 0xC0) != 0x80) return i;
        i += more + 1;
    }
    return size;
}
