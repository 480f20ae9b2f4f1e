/* What the interpreters of models whose steps are a table have in common. Included by these alone. */
#ifndef UMA_STEPS_H
#define UMA_STEPS_H

#include "uma_graph.h"
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

static void *uma_operand_address(const uma_graph_memory *memory, size_t operand)
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

#endif
