/* The interpreter of models whose steps are a table with branches and loops. An image has it once. */
#include "uma_ways.h"

#include "uma_steps.h"

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

        for (i = 0; i < step->n_operands; i++) memory->operands[i] = uma_operand_address(memory, *operand++);
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
