/*
 * Codebooks: package-merge against an independent optimum, completeness, every small table through the
 * reader, the tree written out from docs/format.md section 5.1; and codebooks that outlive a frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include <math.h>

#include "gcomp/codebook.h"
#include "gcomp/mask_code.h"

/* ---- lengths ------------------------------------------------------------------------------------------- */

/* Least total cost of prefix codes of at most 11 bits, by dynamic programming over the code tree from the
 * root down: at each depth, some of the open nodes become leaves of the heaviest labels left, the others open
 * two nodes below. Every label that is left pays one bit a level. Nothing in common with package-merge. */
static gw_codebook_kind kind_of(uint32_t dtype, uint32_t derived)
{
    const gw_codebook_kind kind = {dtype, derived, 0};
    return kind;
}

static uint64_t least_cost(const uint32_t *weight, uint32_t n)
{
    enum { LABELS = 64, DEPTHS = 12 };
    /* [depth][labels placed][open nodes at that depth] */
    static uint64_t best[DEPTHS + 1][LABELS + 1][LABELS + 1];
    uint32_t sorted[LABELS];
    uint64_t rest[LABELS + 1];
    assert_true(n <= LABELS);
    memcpy(sorted, weight, n * sizeof *sorted);
    for (uint32_t i = 0; i < n; i++) { /* heaviest first */
        for (uint32_t j = i + 1; j < n; j++) {
            if (sorted[j] > sorted[i]) {
                const uint32_t swap = sorted[i];
                sorted[i] = sorted[j];
                sorted[j] = swap;
            }
        }
    }
    rest[n] = 0;
    for (uint32_t i = n; i-- > 0;) {
        rest[i] = rest[i + 1] + sorted[i];
    }
    for (uint32_t depth = DEPTHS; depth-- > 0;) {
        for (uint32_t i = 0; i <= n; i++) {
            for (uint32_t open = 0; open <= n; open++) {
                uint64_t least = i == n && open == 0 ? 0 : UINT64_MAX;
                for (uint32_t leaves = 0; leaves <= open && i + leaves <= n && i < n && open > 0; leaves++) {
                    const uint32_t below = 2 * (open - leaves);
                    if (below > n - i - leaves || (below == 0) != (i + leaves == n)) {
                        continue;
                    }
                    if (below == 0) {
                        least = least < 1 ? least : 0;
                        continue;
                    }
                    if (depth == DEPTHS - 1) {
                        continue; /* nothing may open below depth 11 */
                    }
                    const uint64_t under = best[depth + 1][i + leaves][below];
                    if (under != UINT64_MAX && under + rest[i + leaves] < least) {
                        least = under + rest[i + leaves];
                    }
                }
                best[depth][i][open] = least;
            }
        }
    }
    return best[0][0][1];
}

static uint64_t cost_of(const uint8_t *length, const uint32_t *count)
{
    uint64_t cost = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        assert_true((length[label] == 0) == (count[label] == 0));
        assert_true(length[label] <= GW_CODE_LEN_MAX);
        cost += (uint64_t)length[label] * count[label];
    }
    return cost;
}

static uint32_t kraft_of(const uint8_t *length)
{
    uint32_t sum = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        sum += length[label] == 0 ? 0 : 2048u >> length[label];
    }
    return sum;
}

static void lengths_are_optimal(void **state)
{
    (void)state;
    test_random random = {1};
    gw_codebook_scratch scratch;
    uint8_t length[GW_LABELS];
    for (uint32_t turn = 0; turn < 3000; turn++) {
        const uint32_t n = 2 + test_random_below(&random, turn < 2000 ? 10 : 45);
        uint32_t count[GW_LABELS] = {0}, weight[64];
        uint32_t previous = 1, current = 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t x;
            switch (turn % 4) {
            case 0:
                x = 1 + test_random_below(&random, 1000);
                break;
            case 1:
                x = 1 + test_random_below(&random, 3);
                break; /* ties */
            case 2:
                x = (uint32_t)(1 + exp(10.0 * test_random_unit(&random)));
                break;
            /* Fibonacci: the limit of 11 binds */
            default:
                x = current;
                current = i < 30 ? previous + current : current;
                previous = x;
                break;
            }
            weight[i] = x;
            uint32_t label = test_random_below(&random, 256);
            while (count[label] != 0) {
                label = (label + 1) & 255;
            }
            count[label] = x;
        }
        gw_codebook_lengths(length, count, &scratch);
        assert_int_equal(kraft_of(length), 2048);
        assert_true(cost_of(length, count) == least_cost(weight, n));
    }
}

/* All alphabets: complete, ordered (a larger count never has a longer code), stable against the order of the
 * labels. */
static void lengths_are_complete(void **state)
{
    (void)state;
    test_random random = {2};
    gw_codebook_scratch scratch;
    uint8_t length[GW_LABELS];
    for (uint32_t turn = 0; turn < 2000; turn++) {
        uint32_t count[GW_LABELS] = {0};
        const uint32_t n = 1 + turn % 256;
        for (uint32_t i = 0; i < n; i++) {
            count[n == 256 ? i : test_random_below(&random, 256)] =
                1 + (uint32_t)exp(test_random_unit(&random) * (turn % 3 == 0 ? 16.0 : 3.0));
        }
        uint32_t labels = 0;
        for (uint32_t i = 0; i < GW_LABELS; i++) {
            labels += count[i] != 0;
        }
        gw_codebook_lengths(length, count, &scratch);
        cost_of(length, count);
        assert_int_equal(kraft_of(length), labels == 1 ? 1024 : 2048);
        for (uint32_t i = 0; i < GW_LABELS; i++) {
            for (uint32_t j = 0; labels > 1 && j < GW_LABELS; j += 1 + turn % 5) {
                assert_true(count[j] == 0 || !(count[i] > count[j] && length[i] > length[j]));
            }
        }
    }
    const uint32_t none[GW_LABELS] = {0};
    gw_codebook_lengths(length, none, &scratch);
    assert_int_equal(kraft_of(length), 0);
}

/* Package-merge by the text of docs/encoder-profile.md, every row whole: the lengths of labels that are
 * sorted by (count, label). */
static void merge_by_the_text(uint8_t *length, const uint32_t *weight, uint32_t n)
{
    enum { ROWS = GW_CODE_LEN_MAX };
    static uint32_t row[ROWS][2 * GW_LABELS];
    static uint8_t is_package[ROWS][2 * GW_LABELS];
    uint32_t below_len = 0;
    for (uint32_t r = 0; r < ROWS; r++) { /* the deepest first */
        uint32_t leaf = 0, package = 0, len = 0;
        while (leaf < n || package < below_len / 2) {
            const uint32_t pair =
                package < below_len / 2 ? row[r - 1][2 * package] + row[r - 1][2 * package + 1] : UINT32_MAX;
            const int is_leaf = leaf < n && weight[leaf] <= pair;
            row[r][len] = is_leaf ? weight[leaf++] : pair;
            package += !is_leaf;
            is_package[r][len++] = !is_leaf;
        }
        below_len = len;
    }
    memset(length, 0, n);
    uint32_t taken = 2 * n - 2;
    for (uint32_t r = ROWS; r-- > 0;) {
        uint32_t packages = 0;
        for (uint32_t i = 0; i < taken; i++) {
            packages += is_package[r][i];
        }
        for (uint32_t i = 0; i < taken - packages; i++) {
            length[i]++;
        }
        taken = 2 * packages;
    }
}

/* Among optimal codes the text chooses one: many ties, and counts for which the limit of 11 binds. */
static void lengths_are_those_of_the_text(void **state)
{
    (void)state;
    test_random random = {3};
    gw_codebook_scratch scratch;
    for (uint32_t turn = 0; turn < 4000; turn++) {
        uint32_t count[GW_LABELS] = {0}, weight[GW_LABELS], n = 0;
        uint8_t label_of[GW_LABELS], length[GW_LABELS], want[GW_LABELS];
        const uint32_t labels = 2 + test_random_below(&random, turn % 2 != 0 ? 254 : 60);
        const double spread = turn % 4 == 0 ? 1.0 : turn % 4 == 1 ? 3.0 : 10.0;
        for (uint32_t i = 0; i < labels; i++) {
            count[test_random_below(&random, 256)] = (uint32_t)exp(spread * test_random_unit(&random));
        }
        for (uint32_t i = 0; i < GW_LABELS; i++) { /* an insertion sort is stable */
            uint32_t at = n;
            for (; count[i] != 0 && at > 0 && weight[at - 1] > count[i]; at--) {
                weight[at] = weight[at - 1];
                label_of[at] = label_of[at - 1];
            }
            if (count[i] != 0) {
                weight[at] = count[i];
                label_of[at] = (uint8_t)i;
                n++;
            }
        }
        if (n < 2) {
            continue;
        }
        gw_codebook_lengths(length, count, &scratch);
        merge_by_the_text(want, weight, n);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(length[label_of[i]], want[i]);
        }
    }
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* The tree of section 5.1, by its text: leaves, stable sort by depth, canonical codes, ranks. Compares ranks
 * and, for each label, the path from the root. */
static void check_tree(const gw_codebook *codebook)
{
    static gw_tree tree;
    gw_tree_build(&tree, codebook);
    uint32_t labels = 0;
    struct {
        uint32_t depth, width, label[128];
    } leaf[GW_LEAVES_MAX];
    uint32_t leaves = 0;
    for (uint32_t i = 0; i < GW_LABELS; i++) {
        labels += codebook->length[i] != 0;
    }
    for (uint32_t l = 1; l <= 11; l++) {
        uint32_t of_length[GW_LABELS], n = 0;
        for (uint32_t i = 0; i < GW_LABELS; i++) {
            if (codebook->length[i] == l) {
                of_length[n++] = i;
            }
        }
        for (uint32_t at = 0; at < n;) {
            uint32_t k = 7;
            while (1u << k > n - at) {
                k--;
            }
            leaf[leaves].depth = labels == 1 ? 0 : l - k;
            leaf[leaves].width = k;
            memcpy(leaf[leaves].label, of_length + at, sizeof(uint32_t) << k);
            leaves++;
            at += 1u << k;
        }
    }
    assert_int_equal(tree.label_count, labels);
    assert_int_equal(tree.inner_count, leaves - 1);
    assert_int_equal(tree.node_count, 2 * leaves - 1);
    uint32_t rank = 0, code = 0, last_depth = 0, seen = 0;
    for (uint32_t depth = 0; depth <= 11; depth++) {
        for (uint32_t i = 0; i < leaves; i++) {
            if (leaf[i].depth != depth) {
                continue;
            }
            code = seen == 0 ? 0 : (code + 1) << (depth - last_depth);
            last_depth = depth;
            seen++;
            /* Follow the code through the tree's nodes. */
            uint32_t node = 0;
            for (uint32_t bit = depth; bit-- > 0;) {
                assert_true(tree.node[node].right != 0);
                const uint32_t right = tree.node[node].right;
                assert_int_equal(tree.node[node].pivot, tree.node[right].first_rank);
                node = code >> bit & 1 ? right : node + 1;
            }
            assert_int_equal(tree.node[node].right, 0);
            assert_int_equal(tree.node[node].width, leaf[i].width);
            assert_int_equal(tree.node[node].depth, depth);
            assert_int_equal(tree.node[node].first_rank, rank);
            for (uint32_t j = 0; j < 1u << leaf[i].width; j++) {
                assert_int_equal(tree.label_of_rank[rank], leaf[i].label[j]);
                assert_int_equal(tree.rank_of_label[leaf[i].label[j]], rank);
                rank++;
            }
            assert_int_equal(tree.node[node].end_rank, rank);
        }
    }
    assert_int_equal(rank, labels);
    assert_int_equal(code, (1u << last_depth) - 1); /* the last code is all ones: the tree is full */
}

static void trees_follow_the_text(void **state)
{
    (void)state;
    test_random random = {3};
    gw_codebook_scratch scratch;
    for (uint32_t turn = 0; turn < 3000; turn++) {
        uint32_t count[GW_LABELS] = {0};
        const uint32_t n = 1 + test_random_below(&random, 256);
        for (uint32_t i = 0; i < n; i++) {
            count[test_random_below(&random, 256)] =
                1 + (uint32_t)exp(test_random_unit(&random) * (turn % 4 == 0 ? 0.2 : 12.0));
        }
        gw_codebook codebook;
        memset(&codebook, 0, sizeof codebook);
        gw_codebook_lengths(codebook.length, count, &scratch);
        check_tree(&codebook);
    }
}

/* All tables of `symbols` labels (two special, then neighbours) with lengths below `end`, through the reader:
 * accepted if and only if complete and tight. */
static void all_tables(uint32_t symbols, uint32_t end)
{
    uint8_t src[16], back[GW_GCOMP_CODEBOOK_SIZE_MAX];
    uint32_t length[8] = {0};
    uint64_t tables = 0, accepted = 0;
    for (;;) {
        uint32_t kraft = 0, used = 0;
        for (uint32_t i = 0; i < symbols; i++) {
            kraft += length[i] == 0 ? 0 : length[i] > 11 ? 1u << 20 : 2048u >> length[i];
            used += length[i] != 0;
        }
        const uint32_t ordinary = symbols - 2;
        uint32_t first = 0, last = 0;
        for (uint32_t i = 0; i < ordinary; i++) {
            if (length[2 + i] != 0) {
                first = first == 0 ? i + 1 : first;
                last = i + 1;
            }
        }
        const int complete = kraft == 2048 || (used == 1 && kraft == 1024);
        memset(src, 0, sizeof src);
        src[3] = (uint8_t)(length[0] | length[1] << 4);
        size_t size = 4;
        if (first != 0) {
            src[1] = (uint8_t)(99 + first);
            src[2] = (uint8_t)(99 + last);
            for (uint32_t i = first; i <= last; i++) {
                src[4 + (i - first) / 2] |= (uint8_t)(length[1 + i] << (i - first) % 2 * 4);
            }
            size += (last - first + 8) / 8 * 4;
        }
        gw_codebook codebook;
        size_t read;
        const gw_status status = gw_codebook_read(&codebook, &read, src, size, kind_of(GW_FP32, 1));
        if ((status == GW_OK) != complete) {
            fail_msg("table %u %u %u %u %u %u %u %u: status %d", length[0], length[1], length[2], length[3],
                     length[4], length[5], length[6], length[7], (int)status);
        }
        if (complete) {
            accepted++;
            assert_int_equal(read, size);
            assert_int_equal(gw_codebook_size(&codebook), size);
            gw_codebook_write(back, &codebook);
            assert_memory_equal(back, src, size);
            if (accepted % 64 == 0) {
                check_tree(&codebook);
            }
            assert_int_equal(gw_codebook_read(&codebook, &read, src, size - 1, kind_of(GW_FP32, 1)),
                             GW_ERR_CORRUPT);
        }
        tables++;
        uint32_t at = 0;
        while (at < symbols && ++length[at] == end) {
            length[at++] = 0;
        }
        if (at == symbols) {
            break;
        }
    }
    print_message("%u symbols, lengths below %u: %llu tables, %llu complete\n", symbols, end,
                  (unsigned long long)tables, (unsigned long long)accepted);
    assert_true(accepted > symbols);
}

static void every_small_table(void **state)
{
    (void)state;
    all_tables(3, 16);
    all_tables(4, 16);
    all_tables(5, 13);
    all_tables(6, 9);
    all_tables(7, 8);
    all_tables(8, 8);
}

/* Codes of mask classes: complete, or a single class of length 1. */
static void mask_rules(void **state)
{
    (void)state;
    /* labels 1 and 100 with one bit each; classes 0 and 1 with one bit each */
    uint8_t bytes[16] = {0, 100, 100, 0x1f, 1, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0};
    const gw_codebook_kind kind = kind_of(GW_FP32, 1);
    gw_codebook codebook;
    size_t used;
    for (size_t size = 0; size < 16; size++) {
        assert_int_equal(gw_codebook_read(&codebook, &used, bytes, size, kind), GW_ERR_CORRUPT);
    }
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_OK);
    assert_int_equal(used, 16);
    assert_true(codebook.is_masked);
    assert_int_equal(codebook.length[GW_LABEL_ZERO], 0);
    uint8_t back[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_codebook_write(back, &codebook);
    assert_int_equal(gw_codebook_size(&codebook), 16);
    assert_memory_equal(back, bytes, 16);
    bytes[8] = 0x21; /* not complete */
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_ERR_CORRUPT);
    bytes[8] = 0x10; /* a single class */
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_OK);
    bytes[8] = 0x20;
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_ERR_CORRUPT);
    bytes[8] = 0;
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_ERR_CORRUPT);
    bytes[8] = 0xcc; /* lengths above 11 */
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_ERR_CORRUPT);
    bytes[8] = 0x11;
    bytes[13] = 1; /* padding */
    assert_int_equal(gw_codebook_read(&codebook, &used, bytes, 16, kind), GW_ERR_CORRUPT);
}

/* Every byte of a mask has a place, and a chunk can be coded whose mask has any mixture of classes. */
static void mask_trees(void **state)
{
    (void)state;
    gw_codebook codebook;
    gw_codebook_scratch scratch;
    gw_tree tree;
    uint32_t random = 1;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t count[GW_MASK_CLASSES], symbols = 0;
        memset(&codebook, 0, sizeof codebook);
        for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
            random = random * 1664525 + 1013904223;
            count[c] = (random >> 28) % 3 == 0 ? 0 : random >> (8 + random % 20);
            symbols += count[c] == 0 ? 0 : 1u << gw_mask_class_width[c];
        }
        if (symbols == 0) {
            continue;
        }
        gw_mask_depths(codebook.mask_depth, count, &scratch);
        gw_mask_tree_build(&tree, &codebook);
        assert_int_equal(tree.label_count, symbols);
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint8_t mask = (uint8_t)byte;
            uint32_t of[GW_MASK_CLASSES] = {0}, c = 0;
            gw_mask_count(of, &mask, 1);
            while (of[c] == 0) {
                c++;
            }
            const uint32_t rank = tree.rank_of_label[byte];
            assert_int_equal(rank != GW_NO_RANK, count[c] != 0);
            if (rank != GW_NO_RANK) {
                assert_int_equal(tree.label_of_rank[rank], byte);
            }
        }
    }
}

static void reader_rules(void **state)
{
    (void)state;
    gw_codebook codebook;
    size_t used;
    /* base, first, last, special, lengths: labels 0 and 100 with one bit each. */
    static const uint8_t good[8] = {0, 100, 100, 0x01, 1, 0, 0, 0};
#define READ(dtype, derived, ...)                                                                            \
    gw_codebook_read(&codebook, &used, (const uint8_t[]){__VA_ARGS__},                                       \
                     sizeof((const uint8_t[]){__VA_ARGS__}), kind_of(dtype, derived))
    for (size_t size = 0; size < 8; size++) {
        assert_int_equal(gw_codebook_read(&codebook, &used, good, size, kind_of(GW_FP32, 0)), GW_ERR_CORRUPT);
    }
    assert_int_equal(gw_codebook_read(&codebook, &used, good, 8, kind_of(GW_FP32, 0)), GW_OK);
    assert_int_equal(READ(GW_FP32, 0, 191, 100, 100, 1, 1, 0, 0, 0), GW_OK);
    assert_int_equal(READ(GW_FP32, 0, 192, 100, 100, 1, 1, 0, 0, 0), GW_ERR_CORRUPT); /* base */
    assert_int_equal(READ(GW_FP32, 1, 1, 100, 100, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);   /* base in derived */
    assert_int_equal(READ(GW_FP16, 0, 1, 100, 100, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);   /* base in fp16 */
    assert_int_equal(READ(GW_FP32, 0, 0, 2, 2, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);       /* reserved labels */
    assert_int_equal(READ(GW_FP32, 0, 0, 3, 3, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);
    assert_int_equal(READ(GW_FP32, 1, 0, 2, 2, 1, 1, 0, 0, 0), GW_OK);     /* exponent 1 */
    assert_int_equal(READ(GW_FP32, 1, 0, 255, 255, 1, 1, 0, 0, 0), GW_OK); /* exponent 254 */
    assert_int_equal(READ(GW_FP16, 1, 0, 32, 32, 1, 1, 0, 0, 0), GW_OK);
    /* exponent 31 of fp16 */
    assert_int_equal(READ(GW_FP16, 1, 0, 33, 33, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);
    assert_int_equal(READ(GW_FP16, 0, 0, 127, 127, 1, 1, 0, 0, 0), GW_OK);
    assert_int_equal(READ(GW_FP16, 0, 0, 128, 128, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);
    /* first is not ordinary */
    assert_int_equal(READ(GW_FP32, 0, 0, 1, 100, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);
    assert_int_equal(READ(GW_FP32, 0, 0, 101, 100, 1, 1, 0, 0, 0), GW_ERR_CORRUPT); /* last before first */
    assert_int_equal(READ(GW_FP32, 0, 0, 0, 100, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);
    assert_int_equal(READ(GW_FP32, 0, 0, 100, 101, 1, 1, 0, 0, 0), GW_ERR_CORRUPT);    /* last not tight */
    assert_int_equal(READ(GW_FP32, 0, 0, 99, 100, 1, 0x10, 0, 0, 0), GW_ERR_CORRUPT);  /* first not tight */
    assert_int_equal(READ(GW_FP32, 0, 0, 100, 100, 1, 0x11, 0, 0, 0), GW_ERR_CORRUPT); /* spare nibble */
    assert_int_equal(READ(GW_FP32, 0, 0, 100, 100, 1, 1, 0, 0, 1), GW_ERR_CORRUPT);    /* padding */
    assert_int_equal(READ(GW_FP32, 0, 0, 100, 100, 12, 1, 0, 0, 0), GW_ERR_CORRUPT);   /* length 12 */
    assert_int_equal(READ(GW_FP32, 0, 0, 0, 0, 1), GW_OK);                             /* label 0 alone */
    /* alone, but not of one bit */
    assert_int_equal(READ(GW_FP32, 0, 0, 0, 0, 2), GW_ERR_CORRUPT);
    assert_int_equal(READ(GW_FP32, 0, 0, 0, 0, 0), GW_ERR_CORRUPT); /* empty */
#undef READ
}

/* ---- codebooks that outlive a frame
 * ------------------------------------------------------------------------ */

enum { LEN = 40000 };

static void make_codebook(const test_codec *codec, const void *values, size_t len, const gw_gcomp_map *map,
                          uint8_t *codebook, size_t *codebook_size)
{
    gw_gcomp_histogram histogram;
    assert_int_equal(gw_gcomp_histogram_init(&histogram, &codec->codec), GW_OK);
    const gw_gcomp_source source = test_source(values, len, map);
    assert_int_equal(gw_gcomp_histogram_add(&histogram, &codec->codec, &source, &codec->work), GW_OK);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 256; i++) {
        sum += histogram.count[i];
    }
    assert_int_equal(sum, len);
    gw_buffer out = {codebook, GW_GCOMP_CODEBOOK_SIZE_MAX, 0};
    assert_int_equal(gw_gcomp_codebook_build(&histogram, &out), GW_OK);
    *codebook_size = out.size;
}

static gw_status decode_with(const test_codec *codec, const test_buffer *frame, size_t size,
                             const gw_gcomp_map *map, uint8_t *out)
{
    gw_gcomp_target target = {.values = out, .capacity = LEN};
    return gw_gcomp_decode(&codec->codec, &(gw_gcomp_frame){.data = frame->at, .size = size, .map = map},
                           &target, &codec->work);
}

static void other_codebook_is_refused(test_codec *sender, test_codec *receiver, uint8_t *values,
                                      const gw_gcomp_map *map)
{
    gw_gcomp_histogram nothing;
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    uint8_t *out = malloc(LEN * 4);
    gw_buffer built = {codebook, sizeof codebook, 0};
    assert_non_null(out);
    assert_int_equal(gw_gcomp_histogram_init(&nothing, &receiver->codec), GW_OK);
    assert_int_equal(gw_gcomp_codebook_build(&nothing, &built), GW_OK);
    gw_gcomp_source source = test_source(values, LEN, map);
    test_buffer frame;
    const size_t size = test_encode(sender, &source, &frame);
    assert_int_equal(decode_with(receiver, &frame, size, map, out), GW_OK);
    assert_int_equal(gw_gcomp_codebook_install(&receiver->codec, 7, 1, codebook, built.size, 0), GW_OK);
    assert_int_equal(decode_with(receiver, &frame, size, map, out), GW_ERR_TABLE);
    test_buffer_free(&frame);
    free(out);
}

static void installed_codebooks(void **state)
{
    (void)state;
    uint8_t *values = malloc(LEN * 4), *out = malloc(LEN * 4);
    assert_true(values != NULL && out != NULL);
    for (uint32_t choice = 0; choice < 3 * 2 * 2 * 2; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, (gw_dtype)(1 + choice % 3));
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice / 3 % 2);
        o.checksum = (int)(choice / 6 % 2);
        o.strict = (int)(choice / 12 % 2);
        o.chunk_log2 = 10 + choice % 6;
        test_codec sender, receiver;
        test_codec_make(&sender, &o);
        o.preset = GW_GCOMP_SMALL; /* the receiver's own preset is irrelevant */
        test_codec_make(&receiver, &o);
        test_map map;
        test_map_make(&map, o.dtype, LEN, o.chunk_log2, choice);
        test_fill_values(values, o.dtype, LEN, PATTERN_GRADIENT, choice);
        uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
        size_t codebook_size;
        make_codebook(&sender, values, LEN, &map.map, codebook, &codebook_size);

        assert_int_equal(gw_gcomp_codebook_install(&sender.codec, 7, 1, codebook, codebook_size, 1), GW_OK);
        /* Also for data that the codebook has never seen: everything out of reach is escaped, chunks become
         * RAW. */
        for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
            test_fill_values(values, o.dtype, LEN, (test_pattern)pattern, choice + 100);
            gw_gcomp_source source = test_source(values, LEN, &map.map);
            test_buffer frame;
            const size_t size = test_encode(&sender, &source, &frame);
            gw_gcomp_frame_info info;
            assert_int_equal(gw_gcomp_frame_peek(frame.at, size, UINT64_MAX, &info), GW_OK);
            assert_true(info.installed && info.codebook_id == 7 && info.codebook_generation == 1 &&
                        info.codebook_crc == gw_crc32c(0, codebook, codebook_size));
            memset(out, 0x77, LEN * 4);
            if (pattern == 0) {
                assert_int_equal(decode_with(&receiver, &frame, size, &map.map, out), GW_ERR_TABLE);
                for (size_t i = 0; i < LEN * 4; i++) {
                    assert_int_equal(out[i], 0x77);
                }
                assert_int_equal(gw_gcomp_codebook_install(&receiver.codec, 7, 2, codebook, codebook_size, 0),
                                 GW_OK);
                assert_int_equal(decode_with(&receiver, &frame, size, &map.map, out), GW_ERR_TABLE);
                assert_int_equal(gw_gcomp_codebook_install(&receiver.codec, 8, 1, codebook, codebook_size, 0),
                                 GW_OK);
                assert_int_equal(decode_with(&receiver, &frame, size, &map.map, out), GW_ERR_TABLE);
                assert_int_equal(gw_gcomp_codebook_install(&receiver.codec, 7, 1, codebook, codebook_size, 0),
                                 GW_OK);
            }
            assert_int_equal(decode_with(&receiver, &frame, size, &map.map, out), GW_OK);
            for (size_t i = 0; i < LEN; i++) {
                const uint32_t want = test_model_round(&sender.options, &source, i, NULL);
                if (test_get(out, o.dtype, i) != want) {
                    fail_msg("choice %u, pattern %d: value %zu, %08x, should become %08x and is %08x", choice,
                             pattern, i, test_get(values, o.dtype, i), want, test_get(out, o.dtype, i));
                }
            }
            test_buffer_free(&frame);
        }

        /* Another codebook under the same id and generation is not the one that the frame was made with. */
        other_codebook_is_refused(&sender, &receiver, values, &map.map);
        assert_int_equal(gw_gcomp_codebook_install(&receiver.codec, 7, 1, codebook, codebook_size, 0), GW_OK);

        /* Two generations are kept: 7/1 and 8/1 now; a third takes the place of the older one. */
        test_fill_values(values, o.dtype, LEN, PATTERN_GRADIENT, choice);
        gw_gcomp_source source = test_source(values, LEN, &map.map);
        test_buffer old_frame, new_frame;
        const size_t old_size = test_encode(&sender, &source, &old_frame);
        assert_int_equal(gw_gcomp_codebook_install(&sender.codec, 7, 2, codebook, codebook_size, 1), GW_OK);
        const size_t new_size = test_encode(&sender, &source, &new_frame);
        assert_int_equal(gw_gcomp_codebook_install(&receiver.codec, 7, 2, codebook, codebook_size, 0), GW_OK);
        assert_int_equal(decode_with(&receiver, &old_frame, old_size, &map.map, out), GW_OK);
        assert_int_equal(decode_with(&receiver, &new_frame, new_size, &map.map, out), GW_OK);
        assert_int_equal(gw_gcomp_codebook_install(&receiver.codec, 7, 3, codebook, codebook_size, 0), GW_OK);
        assert_int_equal(decode_with(&receiver, &old_frame, old_size, &map.map, out), GW_ERR_TABLE);
        assert_int_equal(decode_with(&receiver, &new_frame, new_size, &map.map, out), GW_OK);

        /* Back to codebooks in the frame. */
        assert_int_equal(gw_gcomp_codebook_uninstall(&sender.codec), GW_OK);
        test_buffer own_frame;
        const size_t own_size = test_encode(&sender, &source, &own_frame);
        gw_gcomp_frame_info info;
        assert_int_equal(gw_gcomp_frame_peek(own_frame.at, own_size, UINT64_MAX, &info), GW_OK);
        assert_int_equal(info.installed, 0);
        assert_int_equal(decode_with(&sender, &new_frame, new_size, &map.map, out), GW_OK); /* still known */
        test_buffer_free(&old_frame);
        test_buffer_free(&new_frame);
        test_buffer_free(&own_frame);
        test_map_free(&map);
        test_codec_free(&sender);
        test_codec_free(&receiver);
    }
    free(values);
    free(out);
}

/* Every single-byte change of a good codebook: either it is a good codebook too, and then reads back, or the
 * handle is untouched. */
static void bad_codebooks(void **state)
{
    (void)state;
    uint8_t *values = malloc(LEN * 4);
    assert_non_null(values);
    for (uint32_t choice = 0; choice < 4; choice++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, choice < 2 ? GW_FP32 : GW_FP16);
        o.quantum_mode = (gw_gcomp_quantum_mode)(choice % 2);
        test_codec codec;
        test_codec_make(&codec, &o);
        test_fill_values(values, o.dtype, LEN, PATTERN_GRADIENT, choice);
        uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
        size_t size;
        make_codebook(&codec, values, LEN, NULL, codebook, &size);
        assert_int_equal(gw_gcomp_codebook_install(&codec.codec, 1, 1, codebook, size, 1), GW_OK);
        const gw_gcomp before = codec.codec;
        uint32_t refused = 0;
        for (size_t at = 0; at < size; at++) {
            for (uint32_t x = 1; x < 256; x++) {
                uint8_t bad[GW_GCOMP_CODEBOOK_SIZE_MAX];
                memcpy(bad, codebook, size);
                bad[at] = (uint8_t)(bad[at] ^ x);
                const gw_status status = gw_gcomp_codebook_install(&codec.codec, 1, 2, bad, size, 1);
                assert_true(status == GW_OK || status == GW_ERR_TABLE);
                if (status == GW_ERR_TABLE) {
                    assert_memory_equal(&codec.codec, &before, sizeof before);
                    refused++;
                }
                codec.codec = before;
            }
        }
        assert_true(refused > 100 * size);
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(gw_gcomp_codebook_install(&codec.codec, 1, 2, codebook, cut, 1), GW_ERR_TABLE);
        }
        uint8_t longer[GW_GCOMP_CODEBOOK_SIZE_MAX + 4] = {0};
        memcpy(longer, codebook, size);
        assert_int_equal(gw_gcomp_codebook_install(&codec.codec, 1, 2, longer, size + 4, 1), GW_ERR_TABLE);
        /* Without label 0 or label 1. */
        assert_int_equal(
            gw_gcomp_codebook_install(&codec.codec, 1, 2, (const uint8_t[]){0, 20, 20, 1, 1, 0, 0, 0}, 8, 1),
            GW_ERR_TABLE);
        assert_int_equal(
            gw_gcomp_codebook_install(&codec.codec, 1, 2, (const uint8_t[]){0, 20, 20, 16, 1, 0, 0, 0}, 8, 1),
            GW_ERR_TABLE);
        assert_int_equal(
            gw_gcomp_codebook_install(&codec.codec, 1, 2, (const uint8_t[]){0, 0, 0, 0x11}, 4, 1), GW_OK);
        assert_int_equal(
            gw_gcomp_codebook_install(&codec.codec, GW_GCOMP_CODEBOOK_ID_END, 2, codebook, size, 1),
            GW_ERR_ARG);
        assert_int_equal(
            gw_gcomp_codebook_install(&codec.codec, GW_GCOMP_CODEBOOK_ID_END - 1, 2, codebook, size, 0),
            GW_OK);
        assert_int_equal(gw_gcomp_codebook_install(NULL, 1, 2, codebook, size, 1), GW_ERR_ARG);
        assert_int_equal(gw_gcomp_codebook_install(&codec.codec, 1, 2, NULL, size, 1), GW_ERR_ARG);
        gw_gcomp blank;
        memset(&blank, 0, sizeof blank);
        assert_int_equal(gw_gcomp_codebook_install(&blank, 1, 2, codebook, size, 1), GW_ERR_STATE);
        test_codec_free(&codec);
    }
    free(values);
}

/* Counts over many calls equal the counts of one; pooled counts give every rank the same codebook. */
static void pooled_histograms(void **state)
{
    (void)state;
    uint8_t *values = malloc(LEN * 4);
    assert_non_null(values);
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    test_codec codec;
    test_codec_make(&codec, &o);
    test_map map;
    test_map_make(&map, o.dtype, LEN, o.chunk_log2, 4);
    test_fill_values(values, o.dtype, LEN, PATTERN_GRADIENT, 4);
    gw_gcomp_histogram whole, half[2];
    gw_gcomp_source source = test_source(values, LEN, &map.map);
    assert_int_equal(gw_gcomp_histogram_init(&whole, &codec.codec), GW_OK);
    assert_int_equal(gw_gcomp_histogram_add(&whole, &codec.codec, &source, &codec.work), GW_OK);
    for (int h = 0; h < 2; h++) {
        gw_gcomp_map part_map = map.map;
        part_map.bytes += h * (LEN / 2);
        part_map.len = LEN / 2;
        gw_gcomp_source part = test_source(values + h * (LEN / 2) * 4, LEN / 2, &part_map);
        part.first_element += (uint64_t)(h * (LEN / 2));
        assert_int_equal(gw_gcomp_histogram_init(&half[h], &codec.codec), GW_OK);
        half[h].window_start = whole.window_start; /* ranks that pool agree on the window first */
        assert_int_equal(gw_gcomp_histogram_add(&half[h], &codec.codec, &part, &codec.work), GW_OK);
    }
    for (uint32_t i = 0; i < 256; i++) {
        half[0].count[i] += half[1].count[i];
    }
    assert_memory_equal(half[0].count, whole.count, sizeof whole.count);
    uint8_t a[GW_GCOMP_CODEBOOK_SIZE_MAX], b[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_buffer out = {a, sizeof a, 0};
    assert_int_equal(gw_gcomp_codebook_build(&whole, &out), GW_OK);
    gw_buffer out2 = {b, sizeof b, 0};
    assert_int_equal(gw_gcomp_codebook_build(&half[0], &out2), GW_OK);
    assert_int_equal(out.size, out2.size);
    assert_memory_equal(a, b, out.size);

    /* Huge counts are scaled, an empty histogram still gives labels 0 and 1. */
    for (uint32_t i = 0; i < 256; i++) {
        whole.count[i] = whole.count[i] == 0 ? 0 : UINT64_MAX / 2 + whole.count[i];
    }
    gw_buffer out3 = {a, sizeof a, 0};
    assert_int_equal(gw_gcomp_codebook_build(&whole, &out3), GW_OK);
    assert_int_equal(gw_gcomp_codebook_install(&codec.codec, 1, 1, a, out3.size, 1), GW_OK);
    assert_int_equal(gw_gcomp_histogram_init(&whole, &codec.codec), GW_OK);
    gw_buffer out4 = {a, sizeof a, 0};
    assert_int_equal(gw_gcomp_codebook_build(&whole, &out4), GW_OK);
    assert_int_equal(gw_gcomp_codebook_install(&codec.codec, 1, 2, a, out4.size, 1), GW_OK);
    static const uint32_t bad_base[] = {192, 254, 256, 256 + 69, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad_base / sizeof bad_base[0]; i++) {
        gw_gcomp_histogram spoiled = whole;
        spoiled.window_start = bad_base[i];
        gw_buffer out5 = {b, sizeof b, 0};
        assert_int_equal(gw_gcomp_codebook_build(&spoiled, &out5), GW_ERR_ARG);
        assert_int_equal(out5.size, 0);
    }
    for (size_t capacity = 0; capacity < out4.size; capacity++) {
        gw_buffer out6 = {b, capacity, 0};
        assert_int_not_equal(gw_gcomp_codebook_build(&whole, &out6), GW_OK);
        assert_int_equal(out6.size, 0);
    }

    o.quantum_mode = GW_GCOMP_DERIVED;
    test_codec other;
    test_codec_make(&other, &o);
    assert_int_equal(gw_gcomp_histogram_add(&whole, &other.codec, &source, &other.work), GW_ERR_STATE);
    test_codec_free(&other);
    test_map_free(&map);
    test_codec_free(&codec);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_optimal),
        cmocka_unit_test(lengths_are_complete),
        cmocka_unit_test(lengths_are_those_of_the_text),
        cmocka_unit_test(trees_follow_the_text),
        cmocka_unit_test(every_small_table),
        cmocka_unit_test(reader_rules),
        cmocka_unit_test(mask_rules),
        cmocka_unit_test(mask_trees),
        cmocka_unit_test(installed_codebooks),
        cmocka_unit_test(bad_codebooks),
        cmocka_unit_test(pooled_histograms),
    };
    return cmocka_run_group_tests_name("gcomp codebook", tests, NULL, NULL);
}
