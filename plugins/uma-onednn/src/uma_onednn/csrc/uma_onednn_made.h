/* Operations of the library that were made: once for each description. */
#ifndef UMA_ONEDNN_MADE_H
#define UMA_ONEDNN_MADE_H

#include "uma_onednn_abi.h"
#include "uma_onednn_spec.h"

enum {
    UMA_ONEDNN_FAULT_VERSION = 64,
    UMA_ONEDNN_FAULT_MEMORY = 65,
    UMA_ONEDNN_FAULT_INT8 = 66
};

enum { UMA_ONEDNN_SRC, UMA_ONEDNN_WEIGHTS, UMA_ONEDNN_BIAS, UMA_ONEDNN_OTHER, UMA_ONEDNN_DST, UMA_ONEDNN_ROLES };

typedef struct uma_onednn_made {
    uint64_t key[2];
    struct uma_onednn_made *next; /* in a ring */
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[UMA_ONEDNN_ROLES];
    int is_packed; /* the weights are a copy in the library's layout, and stay where they are */
    int32_t zero_point;
    dnnl_memory_t zero_points;
    dnnl_memory_t scratchpad;
    size_t scratchpad_bytes;
    int n_args;
    dnnl_exec_arg_t args[UMA_ONEDNN_ROLES + 2];
} uma_onednn_made;

/* Makes `made`, which is 0; 0, or a fault code, with which what was made of it is to be dropped too. */
int32_t uma_onednn_make(uma_onednn_made *made, dnnl_engine_t engine, dnnl_stream_t stream, const uma_onednn_spec *spec,
                        const void *weights);
void uma_onednn_drop(uma_onednn_made *made);

#endif
