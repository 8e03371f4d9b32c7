/* Words of UTF-8 text to ids: a hash table that gives each word the next free id and counts it.
 *
 * A word is what stands between ASCII white space (space, tab, CR, VT, FF, LF) and NUL; LF ends a
 * line, and a line with a word is a sentence. Nothing here knows what the words are for.
 */
#ifndef FASTNPLM_LEXICON_H
#define FASTNPLM_LEXICON_H

#include <stddef.h>
#include <stdint.h>

/* What is known of a word, by id. A word of at most 16 bytes is its own key (two loads, filled up
 * with NUL, which no word holds); of a longer one the key is a hash and the place where it begins
 * in the letters. */
typedef struct {
    uint64_t key[2];
    int64_t count;
    uint32_t length;
} known_word;

/* Small, so that a table of a million words is no more than 16 MB read at random places; frequent
 * words come early, so what is known of them lies together. */
typedef struct {
    uint32_t hash;
    uint32_t number; /* id + 1; 0: the slot is free */
} slot;

typedef struct {
    slot *slots; /* slot_count of them, a power of two, at most two thirds in use */
    size_t slot_count;
    known_word **known; /* by id, WORDS_A_SEGMENT in each segment: they never move */
    char *letters;      /* the words of more than 16 bytes */
    size_t words, segments, letters_used, letter_room;
} lexicon;

enum { SEGMENT_BITS = 16, WORDS_A_SEGMENT = 1 << SEGMENT_BITS }; /* a segment fills a large page */

static inline known_word *known_of(const lexicon *table, size_t id) {
    return table->known[id >> SEGMENT_BITS] + (id & (WORDS_A_SEGMENT - 1));
}

enum { TEXT_OK = 0, TEXT_NO_MEMORY, TEXT_BAD_UTF8, TEXT_RESERVED, TEXT_UNKNOWN, TEXT_TOO_LONG };
enum { RESERVED_REJECT = 0, RESERVED_WHITESPACE, RESERVED_MAP };

typedef struct {
    uint64_t part[2];
} word_key;

typedef struct {
    ptrdiff_t begin;
    word_key key;
    uint32_t length; /* 0: a line ends here */
    uint32_t hash;
} found_word;

/* Where words of a block are: some thousands are found before they are looked up. */
enum { WORDS_TOGETHER = 1 << 12 };
typedef struct {
    found_word found[WORDS_TOGETHER];
    size_t count;
    ptrdiff_t next, begin; /* where finding goes on, and where the open word begins */
} words;

typedef struct {
    int32_t unknown; /* id of a word that is not in a fixed table; -1: such a word is an error */
    int32_t start, end;
    int fixed, reserved, characters;
} reading;

typedef struct {
    ptrdiff_t tokens, lines, blank_lines, sentences, reserved;
    int ends_first; /* the first line ends before any word of the block */
    int open_words; /* words stand behind the last line end */
    ptrdiff_t position; /* of the byte an error is about */
} tally;

/* All return one of the codes above; after an error the table is still sound. */
int lexicon_begin(lexicon *table);
void lexicon_end(lexicon *table);
size_t lexicon_memory(const lexicon *table);

/* How often each word was met; counts: (words,), written. */
void lexicon_counts(const lexicon *table, int64_t *counts);

/* Where each word ends when all stand behind one another; ends: (words,), written. */
void lexicon_ends(const lexicon *table, int64_t *ends);

/* A word and its length. */
const char *lexicon_word(const lexicon *table, int32_t id, size_t *length);

/* Add words with their counts. The id -1 is given to those whose hash is not `part` modulo `parts`,
 * and to those that are not there and have a count below `least`: they are not added.
 * ends: (words,) places in letters; ids: (words,), written. */
int lexicon_add(lexicon *table, const char *letters, const int64_t *ends, const int64_t *counts,
                ptrdiff_t words, int64_t least, uint64_t part, uint64_t parts, int32_t *ids);

/* Ids of words, -1 for those that are not there. ends, ids: (words,) as above. */
void lexicon_find(const lexicon *table, const char *letters, const int64_t *ends, ptrdiff_t words,
                  int32_t *ids);

/* Ids of a block of text. Its last byte must be a separator. w: room to work in.
 * ids: (size,), enough for any block; the end of sentence follows each sentence. */
int lexicon_read(lexicon *table, words *w, const char *text, ptrdiff_t size, const reading *how,
                 int32_t *ids, tally *seen);

/* Ids from `first` on that were met `least` times or more, by falling count, ties by bytes.
 * order: room for all words; *found is set. */
int lexicon_order(const lexicon *table, int32_t first, int64_t least, int32_t *order,
                  ptrdiff_t *found);

/* The words with these ids in this order, each with a tab, its count and a line end behind it, or,
 * where counts is NULL, with the line end alone. Returns the number of bytes. out: room for the
 * words and 21 bytes more for each. */
size_t lexicon_lines(const lexicon *table, const int32_t *ids, const int64_t *counts,
                     ptrdiff_t size, char *out);

/* Replace ids by table[id] (words entries): out is uint16 or int32, (size,).
 * Returns the place of the first id outside the table, or size; *met counts `wanted` in out. */
ptrdiff_t recode_16(const int32_t *ids, ptrdiff_t size, const int32_t *table, ptrdiff_t words,
                    int32_t wanted, uint16_t *out, ptrdiff_t *met);
ptrdiff_t recode_32(const int32_t *ids, ptrdiff_t size, const int32_t *table, ptrdiff_t words,
                    int32_t wanted, int32_t *out, ptrdiff_t *met);

/* Place of the first byte that is not UTF-8 as Python reads it, or size. */
ptrdiff_t utf8_check(const char *text, ptrdiff_t size);

#endif
