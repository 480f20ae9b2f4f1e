/* Models whose steps are a table, with branches and loops: where steps lead, and the function that runs such a table.
 *
 * A step of the kind UMA_WAY computes nothing: it says whether the run goes on behind it, or elsewhere.
 */
#ifndef UMA_WAYS_H
#define UMA_WAYS_H

#include "uma_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UMA_WAY (-3) /* in the place of a step's device */

/* Where a step leads that does not lead to the next one. */
typedef struct uma_way {
    size_t step;
    size_t operand; /* the first of that step's operands in the table of all */
} uma_way;

/* In the place of a kernel: that the run goes on elsewhere where the operand, a bool, is false. */
UMA_HIDDEN int32_t uma_way_unless(uma_device *device, void *const *operands);

/* In the place of a kernel: that the run goes on elsewhere. */
UMA_HIDDEN int32_t uma_way_always(uma_device *device, void *const *operands);

/* In the place of a kernel: that the run goes on with the next step. */
UMA_HIDDEN int32_t uma_way_never(uma_device *device, void *const *operands);

/* As uma_graph_run; `ways` has an entry for each step, which is read of steps of the kind UMA_WAY. */
UMA_HIDDEN uma_status uma_ways_run(const uma_graph *graph, const uma_way *ways, const uma_graph_memory *memory,
                                   const void *context);

#ifdef __cplusplus
}
#endif

#endif
