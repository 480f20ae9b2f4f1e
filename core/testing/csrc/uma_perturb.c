/* Runs a model on its devices, each case in a process of its own, with one access of a driver to its device changed: a
 * write left out, a value that is read another one. Says for each how it ended, and whether the device gives right results
 * afterwards.
 *
 *     perturb record           every access of a run: "w DEVICE OFFSET VALUE ADDRESS", "r DEVICE OFFSET VALUE ADDRESS"
 *     perturb run SECONDS      reads a case a line, "KIND DEVICE INDEX OFFSET VALUE"; writes a line for each:
 *                              "OPEN STATUS DEVICE CODE AFTER": what opening gave, the status of the run, the device and
 *                              the code of its fault, 1 where a run without a change is as it should be afterwards; or
 *                              "signal N". After MAX_HANGS cases that did not end it says "skipped"
 *     perturb plain            two runs, without a change; the exit code is 0 where they give the same
 *
 * It is compiled with the C of the model, the sources of which are not changed. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "uma_device.h"

const uma_model *uma_perturbed_model(void);
const unsigned char *uma_perturbed_constants(void);

#define MAX_DEVICES 8
#define MAX_HANGS 1
#define WALL 12 /* seconds of the clock for each of a process */
#define NO_ONE (-1)

typedef enum kind {
    NOTHING,
    DROP_WRITE,   /* write INDEX does not reach the device */
    SET_WRITE,    /* write INDEX has VALUE */
    SWAP_WRITES,  /* write INDEX comes behind the next one */
    TWICE,        /* write INDEX comes twice */
    INSERT_WRITE, /* before write INDEX, VALUE goes to the register at OFFSET */
    SET_READ,     /* read INDEX gives VALUE */
    ALL_READS,    /* from read INDEX on those at OFFSET give VALUE */
    STUCK,        /* from read INDEX on those at OFFSET give what read INDEX gave */
    UNREACHABLE,  /* the device does not reach the INDEX-th piece of memory that it is given */
    SET_MEMORY,   /* the word at OFFSET of the INDEX-th piece of memory is XORed with VALUE */
    LESS_MEMORY,  /* what stands behind the driver is given VALUE bytes only */
    READ_MORE,    /* before write INDEX, the register at OFFSET is read */
    SET_CONSTANT  /* the word at OFFSET of the model's constants is XORed with VALUE */
} kind;

static const char *const NAMES[] = {"nothing", "drop",  "set",   "swap",        "twice",  "insert", "read",
                                    "reads",   "stuck", "unreachable", "memory", "less",   "look",
                                    "constant"};

typedef struct change {
    kind what;
    int32_t device;
    long index;
    uint32_t offset;
    uint32_t value;
} change;

/* What stands between a driver and its device. */
typedef struct between {
    int32_t number;
    uma_bus bus; /* of the device itself */
    const uma_device_info *real;
    long writes, reads, addresses;
    int32_t halves;   /* of an address that are about to be written */
    int held;         /* a write waits for the next one */
    uint32_t held_offset, held_value;
    uint32_t stuck;
    int is_stuck;
} between;

static change now;
static int recording;
static between bus_of[MAX_DEVICES];
static int32_t opened; /* the device that is being opened */

static int concerns(const between *b, kind what) { return now.what == what && now.device == b->number; }

static uint32_t read32(void *self, uint32_t offset)
{
    between *const b = self;
    const long index = b->reads++;
    uint32_t value = b->is_stuck && offset == now.offset ? b->stuck : 0;

    if (concerns(b, ALL_READS) && index >= now.index && offset == now.offset) return now.value;
    if (b->is_stuck && offset == now.offset) return value;
    value = b->bus.read32(b->bus.self, offset);
    if (recording) printf("r %d %u %u 0\n", (int)b->number, (unsigned)offset, (unsigned)value);
    if (concerns(b, STUCK) && index == now.index) {
        b->is_stuck = 1;
        b->stuck = value;
    }
    return concerns(b, SET_READ) && index == now.index ? now.value : value;
}

static void write32(void *self, uint32_t offset, uint32_t value)
{
    between *const b = self;
    const long index = b->writes++;
    const int is_address = b->halves > 0;

    if (is_address) b->halves--;
    if (recording) printf("w %d %u %u %d\n", (int)b->number, (unsigned)offset, (unsigned)value, is_address);
    if (index == now.index) {
        if (concerns(b, DROP_WRITE)) return;
        if (concerns(b, SET_WRITE)) value = now.value;
        if (concerns(b, INSERT_WRITE)) b->bus.write32(b->bus.self, now.offset, now.value);
        if (concerns(b, READ_MORE)) (void)b->bus.read32(b->bus.self, now.offset);
        if (concerns(b, TWICE)) b->bus.write32(b->bus.self, offset, value);
        if (concerns(b, SWAP_WRITES)) {
            b->held = 1;
            b->held_offset = offset;
            b->held_value = value;
            return;
        }
    }
    b->bus.write32(b->bus.self, offset, value);
    if (b->held) {
        b->held = 0;
        b->bus.write32(b->bus.self, b->held_offset, b->held_value);
    }
}

/* Lets the page of read-only memory be written in this process. */
static int writable(const void *at)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)at / page * page;

    return mprotect((void *)first, (uintptr_t)at % page + 4 > page ? 2 * page : page, PROT_READ | PROT_WRITE) == 0;
}

static void flip(const void *at)
{
    uint32_t value;

    if (!writable(at)) return;
    memcpy(&value, at, sizeof value);
    value ^= now.value;
    memcpy((void *)(uintptr_t)at, &value, sizeof value);
}

static int32_t address(void *self, const void *host, uint64_t *given)
{
    between *const b = self;
    const long index = b->addresses++;

    if (concerns(b, UNREACHABLE) && index == now.index) return UMA_FAULT_UNREACHABLE;
    if (concerns(b, SET_MEMORY) && index == now.index) flip((const unsigned char *)host + now.offset);
    b->halves = 2;
    *given = (uint64_t)(uintptr_t)host;
    return b->bus.address != NULL ? b->bus.address(b->bus.self, host, given) : 0;
}

/* As the bus of the description of a device. */
static int32_t bus_between(uma_device *device, void *memory, size_t bytes)
{
    between *const b = &bus_of[opened];

    if (concerns(b, LESS_MEMORY)) bytes = now.value;
    UMA_TRY(b->real->bus(device, memory, bytes));
    if (device->bus.read32 == NULL || device->bus.write32 == NULL) return 0;
    b->bus = device->bus;
    device->bus.self = b;
    device->bus.read32 = read32;
    device->bus.write32 = write32;
    device->bus.address = address;
    return 0;
}

/* What belongs to the bus itself is called with its own self. */
static void wait_for(void *self)
{
    between *const b = self;
    if (b->bus.wait != NULL) b->bus.wait(b->bus.self);
}

static void clean(void *self, const void *at, size_t bytes)
{
    between *const b = self;
    if (b->bus.clean != NULL) b->bus.clean(b->bus.self, at, bytes);
}

static void invalidate(void *self, void *at, size_t bytes)
{
    between *const b = self;
    if (b->bus.invalidate != NULL) b->bus.invalidate(b->bus.self, at, bytes);
}

static void *memory_of(size_t bytes, size_t alignment)
{
    void *made = NULL;

    if (bytes == 0) return NULL;
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    if (posix_memalign(&made, alignment, bytes) != 0) abort();
    memset(made, 0, bytes);
    return made;
}

typedef struct model_run {
    const uma_model *model;
    uma_device devices[MAX_DEVICES];
    uma_device_info infos[MAX_DEVICES];
    uma_device *given[MAX_DEVICES];
    void **inputs, **outputs;
    void *context, *arena, *state;
} model_run;

/* Numbers that differ from element to element, and are small where they are floats. */
static void fill(const uma_tensor_info *info, unsigned char *at)
{
    size_t i;
    uint32_t state = 12345;

    if (strcmp(info->dtype, "float32") == 0) {
        for (i = 0; i < info->bytes / 4; i++) {
            const float value = (float)((int32_t)(i * 7 % 17) - 8) / 4.0f;
            memcpy(at + 4 * i, &value, 4);
        }
        return;
    }
    for (i = 0; i < info->bytes; i++) {
        state = state * 1664525u + 1013904223u;
        at[i] = strcmp(info->dtype, "bool") == 0 ? (unsigned char)(state >> 31) : (unsigned char)(state >> 24);
    }
    if (strncmp(info->dtype, "float", 5) == 0) memset(at, 0, info->bytes);
}

static void prepare(model_run *run)
{
    const uma_model *const model = uma_perturbed_model();
    int32_t i;

    run->model = model;
    run->inputs = memory_of(sizeof(void *) * (size_t)(model->n_inputs + 1), 0);
    run->outputs = memory_of(sizeof(void *) * (size_t)(model->n_outputs + 1), 0);
    for (i = 0; i < model->n_inputs; i++) {
        run->inputs[i] = memory_of(model->inputs[i].bytes + 64, 64);
        fill(&model->inputs[i], run->inputs[i]);
    }
    for (i = 0; i < model->n_outputs; i++) run->outputs[i] = memory_of(model->outputs[i].bytes + 64, 64);
    run->context = memory_of(model->context_bytes, 64);
    run->arena = memory_of(model->arena_bytes, model->arena_alignment);
    run->state = memory_of(model->state_bytes, model->state_alignment);
}

/* Opens all devices: 0, or the fault of the first that cannot be opened, and which one. */
static int32_t open_all(model_run *run, int32_t *which)
{
    int32_t i;

    for (i = 0; i < run->model->n_devices; i++) {
        const uma_device_info *const info = &run->model->devices[i];
        int32_t code;
        run->infos[i] = *info;
        memset(&bus_of[i], 0, sizeof bus_of[i]);
        bus_of[i].number = i;
        bus_of[i].real = info;
        if (info->bus != NULL) run->infos[i].bus = bus_between;
        opened = i;
        *which = i;
        code = uma_device_open(&run->devices[i], &run->infos[i],
                               memory_of(info->driver->state_bytes, info->driver->state_alignment),
                               memory_of(info->bus_bytes, 64));
        if (code != 0) return code;
        if (run->devices[i].bus.self == &bus_of[i]) {
            if (bus_of[i].bus.wait != NULL) run->devices[i].bus.wait = wait_for;
            if (bus_of[i].bus.clean != NULL) run->devices[i].bus.clean = clean;
            if (bus_of[i].bus.invalidate != NULL) run->devices[i].bus.invalidate = invalidate;
        }
        run->given[i] = &run->devices[i];
    }
    return 0;
}

static uma_status once(model_run *run)
{
    const uma_model *const model = run->model;
    uma_status status;
    int32_t i;

    for (i = 0; i < model->n_outputs; i++) memset(run->outputs[i], 0x5a, model->outputs[i].bytes);
    status = model->init(run->context, run->arena, model->arena_bytes, run->state, model->state_bytes, run->given);
    return status != UMA_OK ? status : model->invoke(run->context, (const void *const *)run->inputs, run->outputs);
}

static int same(const model_run *run, void *const *wanted)
{
    int32_t i;

    for (i = 0; i < run->model->n_outputs; i++) {
        if (memcmp(run->outputs[i], wanted[i], run->model->outputs[i].bytes) != 0) return 0;
    }
    return 1;
}

/* In a process of its own: one case. */
static void one_case(model_run *run, void *const *wanted)
{
    int32_t which = NO_ONE, code;
    uma_status status = UMA_OK;
    const uma_fault *fault;
    int after = 0, reopen = 0;

    if (now.what == SET_CONSTANT) flip(uma_perturbed_constants() + now.offset);
    code = open_all(run, &which);
    if (code != 0) {
        now.what = NOTHING;
        printf("%d 0 %d %d ", (int)code, (int)which, (int)code);
        code = open_all(run, &which);
        after = code == 0 && once(run) == UMA_OK && same(run, wanted);
    } else {
        int32_t i;
        /* What a driver was told when it opened the device, it believes until it is closed. */
        for (i = 0; i < run->model->n_devices; i++) {
            const int of_reads = now.what == SET_READ || now.what == ALL_READS || now.what == STUCK;
            reopen |= i == now.device && (of_reads ? bus_of[i].reads : bus_of[i].writes) > now.index;
            reopen |= now.what == ALL_READS || now.what == STUCK || now.what == LESS_MEMORY;
        }
        status = once(run);
        fault = run->model->fault != NULL ? run->model->fault(run->context) : NULL;
        which = status == UMA_ERR_DEVICE && fault != NULL ? fault->device : NO_ONE;
        code = status == UMA_ERR_DEVICE && fault != NULL ? fault->code : 0;
        if (now.what == SET_CONSTANT) flip(uma_perturbed_constants() + now.offset);
        now.what = NOTHING;
        for (i = 0; i < MAX_DEVICES; i++) bus_of[i].is_stuck = bus_of[i].held = bus_of[i].halves = 0;
        printf("0 %d %d %d ", (int)status, (int)which, (int)code);
        for (i = 0; i < run->model->n_inputs; i++) fill(&run->model->inputs[i], run->inputs[i]);
        if (reopen) after = open_all(run, &i) == 0;
        after = (after || !reopen) && once(run) == UMA_OK && same(run, wanted);
    }
    printf("%d\n", after);
    fflush(stdout);
    _exit(0);
}

static int is_late(int number) { return number == SIGALRM || number == SIGXCPU; }

static int run_cases(model_run *run, void *const *wanted, unsigned seconds)
{
    char line[200], name[32];
    int hangs = 0;

    while (fgets(line, sizeof line, stdin) != NULL) {
        int device, status;
        long index;
        unsigned offset, value;
        size_t i;
        pid_t child;
        if (sscanf(line, "%31s %d %ld %u %u", name, &device, &index, &offset, &value) != 5) return 2;
        now.what = NOTHING;
        for (i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
            if (strcmp(name, NAMES[i]) == 0) now.what = (kind)i;
        }
        now.device = device;
        now.index = index;
        now.offset = offset;
        now.value = value;
        if (hangs >= MAX_HANGS) {
            puts("skipped");
            continue;
        }
        fflush(stdout);
        child = fork();
        if (child < 0) return 3;
        if (child == 0) {
            const struct rlimit limit = {seconds, seconds + 1};
            /* Its own time, not that of a machine that has other work; and that of one which sleeps. */
            (void)setrlimit(RLIMIT_CPU, &limit);
            alarm(WALL * seconds);
            one_case(run, wanted);
        }
        if (waitpid(child, &status, 0) != child) return 3;
        if (WIFSIGNALED(status)) {
            printf("\nsignal %d\n", is_late(WTERMSIG(status)) ? SIGALRM : WTERMSIG(status));
            hangs += is_late(WTERMSIG(status));
        } else if (WEXITSTATUS(status) != 0) {
            printf("\nexit %d\n", WEXITSTATUS(status));
        }
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static model_run first, run;
    int32_t which, code;
    uma_status status;

    if (argc < 2 || uma_perturbed_model()->n_devices > MAX_DEVICES) return 2;
    recording = strcmp(argv[1], "record") == 0;
    prepare(&first);
    code = open_all(&first, &which);
    if (code != 0) {
        printf("open %d %d\n", (int)which, (int)code);
        return 4;
    }
    status = once(&first);
    if (status != UMA_OK) {
        const uma_fault *const fault = first.model->fault != NULL ? first.model->fault(first.context) : NULL;
        printf("stopped %d %d %d\n", (int)status, fault != NULL ? (int)fault->device : NO_ONE,
               fault != NULL ? (int)fault->code : 0);
        return 5;
    }
    prepare(&run);
    if (recording) return 0;
    if (strcmp(argv[1], "plain") == 0) {
        code = open_all(&run, &which);
        return code == 0 && once(&run) == UMA_OK && same(&run, first.outputs) && once(&run) == UMA_OK &&
                       same(&run, first.outputs)
                   ? 0
                   : 6;
    }
    return run_cases(&run, first.outputs, argc > 2 ? (unsigned)atoi(argv[2]) : 10);
}
