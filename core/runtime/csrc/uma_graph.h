/* Models whose steps are a table: what the table holds, and the function that runs it.
 *
 * A table is constant data of a few words for each step. The kernels that it names have nothing of a model in them:
 * several models of one image share those that they have in common, and this interpreter.
 */
#ifndef UMA_GRAPH_H
#define UMA_GRAPH_H

#include "uma_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The memory that an operand is in. */
#define UMA_GRAPH_DEVICE 0u  /* that of a device: the operand is an address there */
#define UMA_GRAPH_WEIGHTS 1u /* the constants of the model */
#define UMA_GRAPH_ARENA 2u   /* the arena of the context */
#define UMA_GRAPH_STATE 3u   /* what the context keeps */
#define UMA_GRAPH_INPUT 4u  /* an array of the caller: the offset is its position among the inputs */
#define UMA_GRAPH_OUTPUT 5u /* the same among the outputs */

/* An operand as one number: its memory, and the offset there in bytes. */
#define UMA_GRAPH_OPERAND(memory, offset) (((size_t)(offset) << 3) | (memory))

#define UMA_GRAPH_HOST (-1)    /* of a step: nothing but the host computes it */
#define UMA_GRAPH_LIBRARY (-2) /* a library does, which may change the mode of floating-point arithmetic */

/* One step. Its operands are those behind the operands of the step before. */
typedef struct uma_graph_step {
    /* Computes it, given the addresses of its operands; the device is null where it drives none. Gives 0, a fault code
     * of the device, or, where another machine is to compute it, that it did not. */
    int32_t (*kernel)(uma_device *device, void *const *operands);
    uint16_t n_operands;
    int16_t device; /* the position of its device in the model's table; or UMA_GRAPH_HOST, UMA_GRAPH_LIBRARY */
} uma_graph_step;

/* What a model does in a run. */
typedef struct uma_graph {
    const uma_graph_step *steps;
    const size_t *operands;
    size_t n_steps;
} uma_graph;

/* What one run works on; what a model does not have is null. */
typedef struct uma_graph_memory {
    const unsigned char *weights;
    unsigned char *arena;
    unsigned char *state;
    const void *const *inputs;
    void *const *outputs;
    uma_device *const *devices; /* activated */
    uma_fault *fault;
    void **operands; /* room for as many as the step with the most has */
} uma_graph_memory;

/* Runs the steps, one after the other; `context` is of the model, for who watches the steps. Gives UMA_OK;
 * UMA_ERR_DEVICE where a device stopped it, as *fault then says; or UMA_ERR_HOST. */
UMA_HIDDEN uma_status uma_graph_run(const uma_graph *graph, const uma_graph_memory *memory, const void *context);

#ifdef __cplusplus
}
#endif

#endif
