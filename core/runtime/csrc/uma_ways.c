/* The interpreter of models whose steps are a table with branches and loops. An image has it once. */
#include "uma_ways.h"

#include "uma_math.h"

/* Where a run begins and its steps end: nothing, unless a file that includes this one says otherwise. It may use the
 * run's `context`. */
#if defined(UMA_INTERRUPTIBLE) && !defined(UMA_RUN_BEGINS)
/* In a library for Python a run may end behind each step, for Ctrl-C. */
UMA_HIDDEN int uma_interrupted(void);
#define UMA_RUN_BEGINS() ((void)0)
#define UMA_STEP_ENDS(step) do { if (uma_interrupted()) return -1; } while (0)
#endif
#ifndef UMA_RUN_BEGINS
#define UMA_RUN_BEGINS() ((void)0)
#define UMA_STEP_ENDS(step) ((void)0)
#endif
#ifndef UMA_STEP_BEGINS
#define UMA_STEP_BEGINS(step)
#endif

static void *uma_ways_address(const uma_graph_memory *memory, size_t operand)
{
    const size_t offset = operand >> 3;

    switch (operand & 7u) {
    case UMA_GRAPH_WEIGHTS:
        return (void *)(uintptr_t)(memory->weights + offset);
    case UMA_GRAPH_ARENA:
        return memory->arena + offset;
    case UMA_GRAPH_STATE:
        return memory->state + offset;
    case UMA_GRAPH_INPUT:
        return (void *)(uintptr_t)memory->inputs[offset];
    case UMA_GRAPH_OUTPUT:
        return memory->outputs[offset];
    default:
        return (void *)(uintptr_t)offset;
    }
}

int32_t uma_way_unless(uma_device *device, void *const *operands)
{
    (void)device;
    return *(const unsigned char *)operands[0] == 0;
}

int32_t uma_way_always(uma_device *device, void *const *operands)
{
    (void)device;
    (void)operands;
    return 1;
}

int32_t uma_way_never(uma_device *device, void *const *operands)
{
    (void)device;
    (void)operands;
    return 0;
}

uma_status uma_ways_run(const uma_graph *graph, const uma_way *ways, const uma_graph_memory *memory,
                        const void *context)
{
    const uma_float_mode mode = uma_float_now();
    const size_t *operand = graph->operands;
    size_t position = 0;

    (void)context;
    UMA_RUN_BEGINS();
    while (position < graph->n_steps) {
        const uma_graph_step *const step = &graph->steps[position];
        int32_t code = 0; /* what is not run leads to the next step */
        uint32_t i;

        for (i = 0; i < step->n_operands; i++) memory->operands[i] = uma_ways_address(memory, *operand++);
        UMA_STEP_BEGINS(position)
        {
            code = step->kernel(step->device < 0 ? NULL : memory->devices[step->device], memory->operands);
            if (step->device != UMA_GRAPH_HOST) uma_float_set(mode); /* a library or a driver may have changed it */
        }
        if (step->device == UMA_WAY && code != 0) {
            operand = graph->operands + ways[position].operand;
            position = ways[position].step;
            continue;
        }
        if (code != 0 && step->device < 0) return UMA_ERR_HOST;
        if (code != 0) return uma_stopped(memory->fault, step->device, (int32_t)position, code);
        UMA_STEP_ENDS(position);
        position++;
    }
    return UMA_OK;
}
