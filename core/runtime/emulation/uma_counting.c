/* A plugin of the emulator (QEMU's TCG plugins, whose interface has the version UMA_PLUGIN_VERSION): counts the instructions of one run of a model.
 *
 * It reads the file "marks" of its working folder, a line for each place in the program where something begins or ends:
 * an address in hexadecimal, and what it is (uma_counted.h). Before the instruction there is executed, what was counted
 * since the mark before belongs to a step, or to none. When the emulator ends it writes the file "counts": how many runs
 * began and ended, then a line for each step and address: step (-1 for none), address, count, mnemonic; with "=" for a mnemonic, how
 * often the step was passed.
 *
 * Distributions ship no header of this interface, so what is used of it is declared here.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

typedef struct qemu_info_t {
    const char *target_name;
    struct {
        int min;
        int cur;
    } version; /* of the interface, that this emulator has */
} qemu_info_t;

typedef void (*translated_function)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*executed_function)(unsigned int cpu, void *data);
typedef void (*ended_function)(qemu_plugin_id_t id, void *data);

#define ADD_U64 0 /* QEMU_PLUGIN_INLINE_ADD_U64 */
#define NO_REGISTERS 0 /* QEMU_PLUGIN_CB_NO_REGS */

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_function function);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_function function, int flags,
                                            void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int operation, void *counter,
                                                uint64_t value);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, ended_function function, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *insn);

EXPORTED extern int qemu_plugin_version;
EXPORTED int qemu_plugin_version = UMA_PLUGIN_VERSION;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

/* As in uma_counted.h; all other marks are the numbers of steps that end. */
#define BEGIN 0xffffffffu
#define END 0xfffffffeu
#define OUTSIDE 0xfffffffdu
#define NEXT 0xfffffffcu

/* An instruction of the program. They stay where they are: translated code adds to their counters. */
typedef struct place {
    uint64_t address;
    uint64_t count; /* how often it was executed */
    uint64_t seen;  /* how often when the last mark was passed */
    char mnemonic[24];
} place;

#define BLOCK 4096u

typedef struct mark {
    uint64_t address;
    uint32_t what;
} mark;

/* What belongs to one step: by the number of the place. */
typedef struct tally {
    uint64_t *counts;
    size_t size;
    uint64_t times; /* how often it was given something */
} tally;

static place **blocks;
static size_t n_places;
static size_t *table; /* by address: number of a place and one, 0 for none */
static size_t table_size;
static mark *marks;
static size_t n_marks;
static tally *tallies; /* the first one is of no step */
static size_t n_tallies;
static uint32_t next_step;
static uint64_t begun, ended;
static int counting;
static int bytes_first; /* the disassembler writes an instruction's bytes before its name */

static void *grown(void *memory, size_t count, size_t size)
{
    void *larger = realloc(memory, count * size);

    if (larger == NULL) {
        fputs("uma_counting: there is no memory left\n", stderr);
        exit(1);
    }
    return larger;
}

static place *place_at(size_t number)
{
    return &blocks[number / BLOCK][number % BLOCK];
}

static size_t *entry_of(uint64_t address)
{
    size_t at = (size_t)((address >> 1) * 0x9e3779b97f4a7c15u) & (table_size - 1);

    while (table[at] != 0 && place_at(table[at] - 1)->address != address) at = (at + 1) & (table_size - 1);
    return &table[at];
}

static void enlarge_table(void)
{
    size_t i;

    free(table);
    table_size = table_size == 0 ? 2 * BLOCK : 2 * table_size;
    table = (size_t *)grown(NULL, table_size, sizeof *table);
    memset(table, 0, table_size * sizeof *table);
    for (i = 0; i < n_places; i++) *entry_of(place_at(i)->address) = i + 1;
}

/* "?" and the bytes in hexadecimal, as they lie in memory. */
static void name_by_bytes(place *one, const struct qemu_plugin_insn *insn)
{
    const unsigned char *bytes = (const unsigned char *)qemu_plugin_insn_data(insn);
    const size_t size = qemu_plugin_insn_size(insn);
    size_t i;

    one->mnemonic[0] = '?';
    for (i = 0; i < size && i < 8; i++) snprintf(&one->mnemonic[1 + 2 * i], 3, "%02x", bytes[i]);
}

static place *place_of(uint64_t address, const struct qemu_plugin_insn *insn)
{
    size_t *entry;
    place *made;
    char *text;

    if (2 * (n_places + 1) > table_size) enlarge_table();
    entry = entry_of(address);
    if (*entry != 0) return place_at(*entry - 1);
    if (n_places % BLOCK == 0) {
        blocks = (place **)grown(blocks, n_places / BLOCK + 1, sizeof *blocks);
        blocks[n_places / BLOCK] = (place *)grown(NULL, BLOCK, sizeof(place));
        memset(blocks[n_places / BLOCK], 0, BLOCK * sizeof(place));
    }
    made = place_at(n_places);
    made->address = address;
    text = qemu_plugin_insn_disas(insn);
    if (text == NULL || text[0] == '.' || text[0] == 0) {
        name_by_bytes(made, insn); /* the emulator's disassembler may know fewer instructions than its CPU */
    } else {
        const char *word = text;
        size_t length;

        if (bytes_first) word += strcspn(word, " \t");
        word += strspn(word, " \t");
        length = strcspn(word, " \t\n");
        if (length >= sizeof made->mnemonic) length = sizeof made->mnemonic - 1;
        memcpy(made->mnemonic, word, length);
    }
    free(text);
    *entry = ++n_places;
    return made;
}

/* Gives what was counted since the last mark to a step; 0 for none. */
static void give(size_t step)
{
    tally *to;
    size_t i;

    if (step >= n_tallies) {
        tallies = (tally *)grown(tallies, step + 1, sizeof *tallies);
        memset(tallies + n_tallies, 0, (step + 1 - n_tallies) * sizeof *tallies);
        n_tallies = step + 1;
    }
    to = &tallies[step];
    to->times++;
    for (i = 0; i < n_places; i++) {
        place *one = place_at(i);

        if (one->count == one->seen) continue;
        if (i >= to->size) {
            to->counts = (uint64_t *)grown(to->counts, n_places, sizeof *to->counts);
            memset(to->counts + to->size, 0, (n_places - to->size) * sizeof *to->counts);
            to->size = n_places;
        }
        to->counts[i] += one->count - one->seen;
        one->seen = one->count;
    }
}

static void passed(unsigned int cpu, void *data)
{
    const uint32_t what = ((const mark *)data)->what;
    size_t i;

    (void)cpu;
    if (what == BEGIN) {
        for (i = 0; i < n_places; i++) place_at(i)->seen = place_at(i)->count;
        counting = 1;
        next_step = 0;
        begun++;
    } else if (counting) {
        if (what == END || what == OUTSIDE) give(0);
        else give((what == NEXT ? next_step++ : what) + (size_t)1);
        if (what == END) {
            counting = 0;
            ended++;
        }
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    const size_t n = qemu_plugin_tb_n_insns(block);
    size_t i, j;

    (void)id;
    for (i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        const uint64_t address = qemu_plugin_insn_vaddr(insn);

        for (j = 0; j < n_marks; j++) {
            if (marks[j].address == address) {
                qemu_plugin_register_vcpu_insn_exec_cb(insn, passed, NO_REGISTERS, &marks[j]);
            }
        }
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &place_of(address, insn)->count, 1);
    }
}

static void finished(qemu_plugin_id_t id, void *data)
{
    FILE *file = fopen("counts", "w");
    size_t step, i;

    (void)id;
    (void)data;
    if (file == NULL) return;
    fprintf(file, "%" PRIu64 " %" PRIu64 "\n", begun, ended);
    for (step = 0; step < n_tallies; step++) {
        if (tallies[step].times != 0) fprintf(file, "%ld 0 %" PRIu64 " =\n", (long)step - 1, tallies[step].times);
        for (i = 0; i < tallies[step].size; i++) {
            const place *one = place_at(i);

            if (tallies[step].counts[i] == 0) continue;
            fprintf(file, "%ld %" PRIx64 " %" PRIu64 " %s\n", (long)step - 1, one->address, tallies[step].counts[i],
                    one->mnemonic);
        }
    }
    if (fclose(file) != 0) remove("counts");
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    FILE *file;
    mark one;

    (void)argc;
    (void)argv;
    if (info->version.min > UMA_PLUGIN_VERSION || info->version.cur < UMA_PLUGIN_VERSION) {
        fprintf(stderr, "uma_counting: this emulator has versions %d to %d of the plugins' interface, not %d\n",
                info->version.min, info->version.cur, UMA_PLUGIN_VERSION);
        return 1;
    }
    bytes_first = strncmp(info->target_name, "riscv", 5) == 0;
    file = fopen("marks", "r");
    if (file == NULL) {
        fputs("uma_counting: there is no file of marks\n", stderr);
        return 1;
    }
    while (fscanf(file, "%" SCNx64 " %" SCNu32, &one.address, &one.what) == 2) {
        marks = (mark *)grown(marks, n_marks + 1, sizeof *marks);
        marks[n_marks++] = one;
    }
    fclose(file);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
