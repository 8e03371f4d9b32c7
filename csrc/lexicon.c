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
#define PREFETCH(place) __builtin_prefetch(place)
#else
#define PREFETCH(place) ((void)(place))
#endif
#define LARGE_PAGE ((size_t)1 << 21)
#define MAX_WORDS ((size_t)INT32_MAX)

/* ---- keys ------------------------------------------------------------------------------- */

enum { OWN_KEY = 16 }; /* up to so many bytes a word is its own key */

typedef struct {
    uint64_t part[2];
} word_key;

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

static inline size_t home(word_key key, size_t length, size_t slot_count) {
    return (spread(key, length) >> 20) & (slot_count - 1);
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Zeroed slots, on large pages where the system has them: a table is read at random places, and
 * looking up the page took most of the time of it. Pages of the system's own come zeroed. */
static slot *new_slots(size_t count) {
#if defined(__linux__)
    size_t bytes = count * sizeof(slot);
    if (bytes >= LARGE_PAGE) { /* both are powers of two */
        char *room = mmap(NULL, bytes + LARGE_PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) return NULL;
        size_t before = (LARGE_PAGE - (uintptr_t)room % LARGE_PAGE) % LARGE_PAGE;
        if (before) munmap(room, before);
        if (before < LARGE_PAGE) munmap(room + before + bytes, LARGE_PAGE - before);
        madvise(room + before, bytes, MADV_HUGEPAGE);
        return (slot *)(room + before);
    }
#endif
    return calloc(count, sizeof(slot));
}

static void free_slots(slot *slots, size_t count) {
#if defined(__linux__)
    if (slots && count * sizeof(slot) >= LARGE_PAGE) {
        munmap(slots, count * sizeof(slot));
        return;
    }
#endif
    (void)count;
    free(slots);
}

/* ---- the table -------------------------------------------------------------------------- */

int lexicon_begin(lexicon *table) {
    memset(table, 0, sizeof *table);
    table->slot_count = 1024;
    table->slots = new_slots(table->slot_count);
    return table->slots ? TEXT_OK : TEXT_NO_MEMORY;
}

void lexicon_end(lexicon *table) {
    free_slots(table->slots, table->slot_count);
    free(table->letters);
    free(table->ends);
    memset(table, 0, sizeof *table);
}

size_t lexicon_memory(const lexicon *table) {
    return table->slot_count * sizeof(slot) + table->letter_room +
           table->word_room * sizeof(size_t);
}

static inline const char *word_of(const lexicon *table, int32_t id) {
    return table->letters + (id ? table->ends[id - 1] : 0);
}

void lexicon_counts(const lexicon *table, int64_t *counts) {
    for (size_t place = 0; place < table->slot_count; place++) {
        const slot *at = table->slots + place;
        if (at->length) counts[at->id] = at->count;
    }
}

/* The slot that holds the word, or the free one where it belongs. */
static inline slot *look(const lexicon *table, const char *word, size_t length, word_key key) {
    size_t place = home(key, length, table->slot_count);
    for (;; place = (place + 1) & (table->slot_count - 1)) {
        slot *at = table->slots + place;
        if (at->length == (uint32_t)length && at->key[0] == key.part[0]) {
            if (length <= OWN_KEY) {
                if (at->key[1] == key.part[1]) return at;
            } else if (memcmp(table->letters + at->key[1], word, length) == 0) {
                return at;
            }
        } else if (at->length == 0) {
            return at;
        }
    }
}

static int grow_slots(lexicon *table) {
    size_t count = table->slot_count * 2;
    slot *grown = new_slots(count);
    if (!grown) return TEXT_NO_MEMORY;
    for (size_t old = 0; old < table->slot_count; old++) {
        const slot *from = table->slots + old;
        if (from->length == 0) continue;
        word_key key = {{from->key[0], from->key[1]}};
        size_t place = home(key, from->length, count);
        while (grown[place].length) place = (place + 1) & (count - 1);
        grown[place] = *from;
    }
    free_slots(table->slots, table->slot_count);
    table->slots = grown;
    table->slot_count = count;
    return TEXT_OK;
}

/* Give the word the next id and a slot; *at, where `look` found it missing, becomes that slot. */
static int insert(lexicon *table, const char *word, size_t length, word_key key, slot **at) {
    size_t used = table->words ? table->ends[table->words - 1] : 0;
    if (table->words == MAX_WORDS) return TEXT_NO_MEMORY;
    if (table->words == table->word_room) {
        size_t room = table->word_room + table->word_room / 2 + 1024;
        size_t *ends = realloc(table->ends, room * sizeof *ends);
        if (!ends) return TEXT_NO_MEMORY;
        table->ends = ends;
        table->word_room = room;
    }
    if (used + length > table->letter_room) {
        size_t room = table->letter_room + table->letter_room / 2 + length + 8192;
        char *letters = realloc(table->letters, room);
        if (!letters) return TEXT_NO_MEMORY;
        table->letters = letters;
        table->letter_room = room;
    }
    if ((table->words + 1) * 3 > table->slot_count * 2) {
        if (grow_slots(table)) return TEXT_NO_MEMORY;
        *at = look(table, word, length, key);
    }
    memcpy(table->letters + used, word, length);
    table->ends[table->words] = used + length;
    if (length > OWN_KEY) key.part[1] = used;
    **at = (slot){{key.part[0], key.part[1]}, 0, (uint32_t)length, (int32_t)table->words};
    table->words++;
    return TEXT_OK;
}

void lexicon_find(const lexicon *table, const char *letters, const int64_t *ends, ptrdiff_t words,
                  int32_t *ids) {
    for (ptrdiff_t number = 0; number < words; number++) {
        const char *word = letters + (number ? ends[number - 1] : 0);
        size_t length = (size_t)(letters + ends[number] - word);
        const slot *at = look(table, word, length, key_of(word, length, 0));
        ids[number] = at->length ? at->id : -1;
    }
}

/* Words whose slots are fetched together, before the first of them is looked up. */
enum { TOGETHER = 32 };

int lexicon_add(lexicon *table, const char *letters, const int64_t *ends, const int64_t *counts,
                ptrdiff_t words, int64_t least, uint64_t part, uint64_t parts, int32_t *ids) {
    word_key keys[TOGETHER];
    const char *all = words ? letters + ends[words - 1] : letters;
    for (ptrdiff_t first = 0; first < words; first += TOGETHER) {
        ptrdiff_t stop = words - first < TOGETHER ? words : first + TOGETHER;
        const char *begin = letters + (first ? ends[first - 1] : 0);
        const char *word = begin;
        for (ptrdiff_t number = first; number < stop; number++) {
            size_t length = (size_t)(letters + ends[number] - word);
            keys[number - first] = key_of(word, length, all - word);
            PREFETCH(table->slots + home(keys[number - first], length, table->slot_count));
            word += length;
        }
        word = begin;
        for (ptrdiff_t number = first; number < stop; number++) {
            size_t length = (size_t)(letters + ends[number] - word);
            word_key key = keys[number - first];
            ids[number] = -1;
            /* Other bits than those that choose the slot, or a part would crowd a few slots. */
            if (parts == 1 || (spread(key, length) & 0xFFFFF) % parts == part) {
                slot *at = look(table, word, length, key);
                if (at->length == 0 && counts[number] >= least &&
                    insert(table, word, length, key, &at))
                    return TEXT_NO_MEMORY;
                if (at->length) {
                    ids[number] = at->id;
                    at->count += counts[number];
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

static inline int take_word(reader *r, const char *word, size_t length, word_key key) {
    slot *at = look(r->table, word, length, key);
    int32_t id = at->id;
    if (at->length == 0) {
        if (r->how->fixed) {
            id = r->how->unknown;
            if (id < 0) return TEXT_UNKNOWN;
        } else {
            if (insert(r->table, word, length, key, &at)) return TEXT_NO_MEMORY;
            id = at->id;
        }
    }
    if (id == r->how->start || id == r->how->end) return take_reserved(r, id);
    if (at->length) at->count++;
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

static int take_characters(reader *r, const char *word, size_t length) {
    /* A reserved word that stands by itself is not spelled out. */
    if (word[0] == '<' && (length == 3 || length == 4 || length == 5) &&
        (memcmp(word, "<s>", length) == 0 || memcmp(word, "</s>", length) == 0 ||
         memcmp(word, "<unk>", length) == 0))
        return take_word(r, word, length, key_of(word, length, 0));
    const char *stop = word + length;
    while (word < stop) {
        unsigned char c = (unsigned char)*word;
        size_t bytes = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        if (!wide_space((const unsigned char *)word, bytes)) {
            int code = take_word(r, word, bytes, key_of(word, bytes, 0));
            if (code) return code;
        }
        word += bytes;
    }
    return TEXT_OK;
}

/* Words are found first and looked up a little later, so that the lines of the table they need are
 * on their way from memory meanwhile. */
enum { AHEAD = 64 };

typedef struct {
    ptrdiff_t begin;
    word_key key;
    uint32_t length; /* 0: a line ends here */
} found_word;

static int take_found(reader *r, const char *text, const found_word *found, int count) {
    for (int i = 0; i < count; i++) {
        int code = TEXT_OK;
        if (found[i].length == 0)
            end_line(r);
        else if (r->how->characters)
            code = take_characters(r, text + found[i].begin, found[i].length);
        else
            code = take_word(r, text + found[i].begin, found[i].length, found[i].key);
        if (code) {
            r->seen->position = found[i].begin;
            return code;
        }
    }
    return TEXT_OK;
}

int lexicon_read(lexicon *table, const char *text, ptrdiff_t size, const reading *how, int32_t *ids,
                 tally *seen) {
    reader r = {table, how, ids, seen, 0, 0};
    memset(seen, 0, sizeof *seen);
    seen->position = utf8_check(text, size);
    if (seen->position < size) return TEXT_BAD_UTF8;

    found_word found[AHEAD + 128]; /* a chunk of 64 bytes has at most 64 separators */
    int waiting = 0, code = TEXT_OK;
    ptrdiff_t begin = 0; /* of the word being read */
    for (ptrdiff_t chunk = 0; chunk < size; chunk += 64) {
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
                seen->position = begin;
                return TEXT_TOO_LONG;
            }
            if (length) {
                word_key key = key_of(text + begin, length, size - begin);
                PREFETCH(table->slots + home(key, length, table->slot_count));
                found[waiting++] = (found_word){begin, key, (uint32_t)length};
            }
            if (text[place] == '\n') found[waiting++] = (found_word){place, {{0, 0}}, 0};
            begin = place + 1;
        }
        if (waiting >= AHEAD) {
            code = take_found(&r, text, found, waiting);
            if (code) return code;
            waiting = 0;
        }
    }
    code = take_found(&r, text, found, waiting);
    if (code) return code;
    seen->open_words = seen->tokens > r.sentence;
    return TEXT_OK;
}

/* ---- order ------------------------------------------------------------------------------ */

typedef struct {
    uint64_t count;
    uint64_t begins; /* the first bytes, the first one highest: most words differ there */
    const slot *at;
} entry;

static inline uint64_t first_bytes(const lexicon *table, const slot *at) {
    uint64_t begins;
    memcpy(&begins, at->length > OWN_KEY ? table->letters + at->key[1] : (const char *)at->key, 8);
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
    size_t left = a->at->length, right = b->at->length;
    int sign = memcmp(word_of(table, a->at->id), word_of(table, b->at->id),
                      left < right ? left : right);
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
    for (size_t place = 0; place < table->slot_count; place++) {
        const slot *at = table->slots + place;
        kept += at->length && at->id >= first && at->count >= least;
    }
    entry *entries = malloc((kept ? kept : 1) * 2 * sizeof *entries), *spare = entries + kept;
    if (!entries) return TEXT_NO_MEMORY;
    for (size_t place = 0; place < table->slot_count; place++) {
        const slot *at = table->slots + place;
        if (at->length == 0 || at->id < first || at->count < least) continue;
        entries[next++] = (entry){(uint64_t)at->count, first_bytes(table, at), at};
        highest |= (uint64_t)at->count;
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
    for (size_t place = 0; place < kept; place++) order[place] = sorted[place].at->id;
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
        const char *word = word_of(table, ids[i]);
        size_t length = (size_t)(table->letters + table->ends[ids[i]] - word);
        memcpy(out, word, length);
        out += length;
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
