/* The interpreter of models whose steps are a table. An image has it once, whatever models are in it. */
#include "uma_steps.h"

uma_status uma_graph_run(const uma_graph *graph, const uma_graph_memory *memory, const void *context)
{
    const uma_float_mode mode = uma_float_now();
    const size_t *operand = graph->operands;
    size_t position;

    (void)context;
    UMA_RUN_BEGINS();
    for (position = 0; position < graph->n_steps; position++) {
        const uma_graph_step *const step = &graph->steps[position];
        int32_t code = 0;
        uint32_t i;

        for (i = 0; i < step->n_operands; i++) memory->operands[i] = uma_operand_address(memory, *operand++);
        UMA_STEP_BEGINS(position)
        {
            code = step->kernel(step->device < 0 ? NULL : memory->devices[step->device], memory->operands);
            if (step->device != UMA_GRAPH_HOST) uma_float_set(mode); /* a library or a driver may have changed it */
        }
        if (code != 0 && step->device < 0) return UMA_ERR_HOST;
        if (code != 0) return uma_stopped(memory->fault, step->device, (int32_t)position, code);
        UMA_STEP_ENDS(position);
    }
    return UMA_OK;
}
