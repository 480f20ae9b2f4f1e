/* What every model that UMA generates has in common.
 *
 * A model is constant data and code: it owns no memory and calls no allocator. All that it works on is a context, an
 * arena and, where it keeps something from one run to the next, memory for this state; all given by the caller, so that
 * one model can run in several contexts, and several models live in one image. The devices that a model runs on are the
 * caller's as well: see uma_device.h.
 */
#ifndef UMA_RUNTIME_H
#define UMA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* Raised whenever a declaration below changes: generated headers refuse another one. */
#define UMA_ABI_VERSION 6

#define UMA_OK 0           /* done */
#define UMA_ERR_ARGUMENT 1 /* a pointer is null, an array is not aligned to its element type, a device is another one;
                            * or an array is in the arena, and not where the model has it there */
#define UMA_ERR_ARENA 2    /* the arena is too small or not aligned */
#define UMA_ERR_ABI 3      /* the model was generated for another version of this file */
#define UMA_ERR_DEVICE 4   /* a device reported a fault: the context says which one, in which step */
#define UMA_ERR_STATE 5    /* the state's memory is too small or not aligned, or a run that a device or a missing row
                            * stopped left it so that only a reset helps */
#define UMA_ERR_HOST 6     /* another machine, which runs a part of the model, did not */
#define UMA_ERR_WEIGHTS 7  /* the weights, which the caller loads, are missing, not aligned, or another model's */
#define UMA_ERR_ROWS 8     /* a function that gives an input row by row gave another row than was asked for, or none:
                            * the context says which */
#define UMA_ERR_THREADS 9  /* what has loops run by several threads did not run every iteration once, which is looked
                            * for where the model is compiled with -DUMA_DEBUG: the outputs are not right */

/* UMA_ALIGNAS(n) before a declaration: the object starts at a multiple of n bytes. Who compiles may define another. */
#if defined(UMA_ALIGNAS)
#elif defined(__cplusplus) && __cplusplus >= 201103L
#define UMA_ALIGNAS(n) alignas(n)
#elif defined(__GNUC__)
#define UMA_ALIGNAS(n) __attribute__((aligned(n)))
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define UMA_ALIGNAS(n) _Alignas(n)
#elif defined(_MSC_VER)
#define UMA_ALIGNAS(n) __declspec(align(n))
#else
#error "UMA_ALIGNAS: this compiler has no known way to align an object; compile as C11 or later, or define it"
#endif

/* UMA_HIDDEN before a declaration: what is declared stays within the program or library that it is linked into. */
#if defined(__GNUC__) && (defined(__ELF__) || defined(__MACH__))
#define UMA_HIDDEN __attribute__((visibility("hidden")))
#else
#define UMA_HIDDEN
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* UMA_OK or one of UMA_ERR_*. */
typedef int32_t uma_status;

/* An input or output. Elements are dense and row-major, in the machine's byte order; bool is one byte, 0 or 1. */
typedef struct uma_tensor_info {
    const char *name;     /* the model's own name in UTF-8; cut where it is longer than 255 bytes */
    const char *dtype;    /* bool, int8, uint8, int16, ..., uint64, float16, float32, float64 */
    int32_t rank;         /* 0: a scalar */
    const int32_t *shape; /* rank extents; null for a scalar */
    size_t bytes;
    float scale; /* real value = scale * (stored value - zero_point); scale 0: not quantised */
    int32_t zero_point;
} uma_tensor_info;

/* What a function did not give that gives an input row by row. */
typedef struct uma_lacking {
    int32_t input; /* its position among the inputs */
    int32_t row;   /* that was asked for */
    int32_t given; /* instead of it */
} uma_lacking;

/* Memory that a kernel on another machine reads or writes. */
typedef struct uma_span {
    void *data;
    size_t bytes;
    int32_t written; /* 0: it is only read */
} uma_span;

/* Runs the iterations begin to end - 1 of a loop of a model. It does not fail. */
typedef void (*uma_body)(const void *args, int32_t begin, int32_t end);

/* What has the loops of a context run by several threads. The model's function NAME_init sets it to none.
 *
 * parallel_for calls body(args, begin, end) for ranges in which each of the numbers 0 to n - 1 is once: as many ranges
 * as it likes, in any order, on any threads, at one time or not; n is 1 or more. It returns when all calls have, and what
 * they have written can be read by its caller. Where it is null the model itself calls body(args, 0, n). A range takes
 * the stack that the model takes; it must run with the floating-point mode of the caller, and may be interrupted.
 */
typedef struct uma_threads {
    void (*parallel_for)(void *user, uma_body body, const void *args, int32_t n);
    void *user;     /* is handed to it */
    int32_t faults; /* loops of the last run that it did not run so, where the model is compiled with -DUMA_DEBUG */
} uma_threads;

/* Of uma_device.h. */
struct uma_device;
struct uma_device_info;
struct uma_fault;

/* The same description of every model. */
typedef struct uma_model {
    uint32_t abi_version;
    const char *name;
    size_t arena_bytes; /* 0: init takes a null arena */
    size_t arena_alignment;
    size_t state_bytes; /* 0: it keeps nothing from one run to the next, and init takes a null state */
    size_t state_alignment;
    size_t context_bytes;
    int32_t n_inputs;
    int32_t n_outputs;
    int32_t n_states;
    int32_t n_devices;
    const uma_tensor_info *inputs;
    const uma_tensor_info *outputs;
    const uma_tensor_info *states;
    const size_t *state_offsets; /* where in the state's memory each of them is */
    const struct uma_device_info *devices;
    /* Makes a context: context_bytes bytes aligned as a pointer is. Arena and state stay the context's until it is
     * dropped. The state is made what it is before the first run. The devices, which are open, come in the order of
     * the table, each another one; null if the model has none. */
    uma_status (*init)(void *context, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
                       struct uma_device *const *devices);
    /* Makes the state of a context what it is before the first run. Null in a model that keeps nothing. */
    uma_status (*reset)(void *context);
    /* Runs the model once. Inputs and outputs come in the order of the tables and may not overlap. */
    uma_status (*invoke)(void *context, const void *const *inputs, void *const *outputs);
    /* What stopped the last run that gave UMA_ERR_DEVICE; and uma_device_open. Null in a model without devices. */
    const struct uma_fault *(*fault)(const void *context);
    int32_t (*open)(struct uma_device *device, const struct uma_device_info *info, void *state, void *memory);
    int32_t n_threads; /* for so many its loops were marked; 1: none are */
    /* What has the loops of a context run, after init. Null in a model that has none to run so. */
    uma_threads *(*threads)(void *context);
} uma_model;

#ifdef __cplusplus
}
#endif

#endif
