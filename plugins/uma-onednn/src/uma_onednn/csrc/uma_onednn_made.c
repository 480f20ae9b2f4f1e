#include "uma_onednn_made.h"

#include "uma_device.h"

/* What is needed until an operation is made. */
typedef struct {
    dnnl_memory_desc_t tensor[UMA_ONEDNN_ROLES];
    dnnl_memory_desc_t any_weights;
    dnnl_memory_desc_t zero_points;
    dnnl_post_ops_t posts;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc;
} draft;

static int32_t describe(dnnl_memory_desc_t *desc, const uma_onednn_tensor *tensor)
{
    dnnl_dims_t dims = {0}, strides = {0};
    int i;

    if (tensor->rank == 0) return 0;
    for (i = 0; i < tensor->rank; i++) {
        dims[i] = tensor->dims[i];
        strides[i] = tensor->strides[i];
    }
    return dnnl_memory_desc_create_with_strides(desc, (int)tensor->rank, dims, (int)tensor->dtype, strides);
}

static int32_t describe_any(dnnl_memory_desc_t *desc, const uma_onednn_tensor *tensor)
{
    dnnl_dims_t dims = {0};
    int i;

    for (i = 0; i < tensor->rank; i++) dims[i] = tensor->dims[i];
    return dnnl_memory_desc_create_with_tag(desc, (int)tensor->rank, dims, (int)tensor->dtype, UMA_DNNL_ANY);
}

static int32_t make_attr(draft *d, const uma_onednn_spec *spec)
{
    int i;

    UMA_TRY(dnnl_primitive_attr_create(&d->attr));
    UMA_TRY(dnnl_primitive_attr_set_scratchpad_mode(d->attr, UMA_DNNL_SCRATCHPAD_USER));
    if (spec->zero_point != 0) {
        UMA_TRY(dnnl_primitive_attr_set_zero_points_mask(d->attr, UMA_DNNL_ARG_SRC, 0));
    }
    if (spec->n_posts == 0) return 0;
    UMA_TRY(dnnl_post_ops_create(&d->posts));
    for (i = 0; i < spec->n_posts; i++) {
        const uma_onednn_step *post = &spec->posts[i];

        UMA_TRY(post->kind == UMA_ONEDNN_POST_BINARY
                    ? dnnl_post_ops_append_binary(d->posts, (int)post->alg, d->tensor[UMA_ONEDNN_OTHER])
                    : dnnl_post_ops_append_eltwise(d->posts, (int)post->alg, (float)post->alpha, (float)post->beta));
    }
    return dnnl_primitive_attr_set_post_ops(d->attr, d->posts);
}

static void window(dnnl_dims_t to, const int64_t *from)
{
    int i;

    for (i = 0; i < UMA_DNNL_MAX_DIMS; i++) to[i] = i < UMA_ONEDNN_WINDOW ? from[i] : 0;
}

static int32_t make_desc(draft *d, dnnl_engine_t engine, const uma_onednn_spec *spec)
{
    const dnnl_memory_desc_t src = d->tensor[UMA_ONEDNN_SRC], bias = d->tensor[UMA_ONEDNN_BIAS];
    const dnnl_memory_desc_t other = d->tensor[UMA_ONEDNN_OTHER], dst = d->tensor[UMA_ONEDNN_DST];
    const dnnl_memory_desc_t weights = d->any_weights != NULL ? d->any_weights : d->tensor[UMA_ONEDNN_WEIGHTS];
    const int alg = (int)spec->step.alg;
    dnnl_dims_t strides, dilation, before, after, kernel;

    window(strides, spec->strides);
    window(dilation, spec->dilation);
    window(before, spec->before);
    window(after, spec->after);
    window(kernel, spec->kernel);
    switch (spec->step.kind) {
    case UMA_ONEDNN_CONVOLUTION:
        return dnnl_convolution_forward_primitive_desc_create(&d->desc, engine, UMA_DNNL_INFERENCE, alg, src, weights,
                                                              bias, dst, strides, dilation, before, after, d->attr);
    case UMA_ONEDNN_MATMUL:
        return dnnl_matmul_primitive_desc_create(&d->desc, engine, src, weights, bias, dst, d->attr);
    case UMA_ONEDNN_POOL:
        return dnnl_pooling_forward_primitive_desc_create(&d->desc, engine, UMA_DNNL_INFERENCE, alg, src, dst, strides,
                                                          kernel, dilation, before, after, d->attr);
    case UMA_ONEDNN_ELTWISE:
        return dnnl_eltwise_forward_primitive_desc_create(&d->desc, engine, UMA_DNNL_INFERENCE, alg, src, dst,
                                                          (float)spec->step.alpha, (float)spec->step.beta, d->attr);
    case UMA_ONEDNN_SOFTMAX:
        return dnnl_softmax_forward_primitive_desc_create(&d->desc, engine, UMA_DNNL_INFERENCE, alg, src, dst, 1,
                                                          d->attr);
    default:
        return dnnl_binary_primitive_desc_create(&d->desc, engine, alg, src, other, dst, d->attr);
    }
}

/* Constant weights in the layout that the library wants, where that is not the one that they have. */
static int32_t pack(uma_onednn_made *made, const draft *d, dnnl_engine_t engine, dnnl_stream_t stream,
                    const struct dnnl_memory_desc *wanted, const void *weights)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t reorder = NULL;
    dnnl_memory_t given = NULL;
    int32_t code;

    code = dnnl_memory_create(&given, d->tensor[UMA_ONEDNN_WEIGHTS], engine, (void *)(uintptr_t)weights);
    if (code == 0) code = dnnl_memory_create(&made->memory[UMA_ONEDNN_WEIGHTS], wanted, engine, UMA_DNNL_ALLOCATE);
    if (code == 0) {
        code = dnnl_reorder_primitive_desc_create(&desc, d->tensor[UMA_ONEDNN_WEIGHTS], engine, wanted, engine, NULL);
    }
    if (code == 0) code = dnnl_primitive_create(&reorder, desc);
    if (code == 0) {
        const dnnl_exec_arg_t args[] = {{UMA_DNNL_ARG_SRC, given},
                                        {UMA_DNNL_ARG_DST, made->memory[UMA_ONEDNN_WEIGHTS]}};

        code = dnnl_primitive_execute(reorder, stream, 2, args);
    }
    if (code == 0) code = dnnl_stream_wait(stream);
    if (reorder != NULL) dnnl_primitive_destroy(reorder);
    if (desc != NULL) dnnl_primitive_desc_destroy(desc);
    if (given != NULL) dnnl_memory_destroy(given);
    made->is_packed = 1;
    return code;
}

static void add_arg(uma_onednn_made *made, int arg, dnnl_memory_t memory)
{
    made->args[made->n_args].arg = arg;
    made->args[made->n_args++].memory = memory;
}

/* The memories that it is given when it runs. */
static int32_t make_args(uma_onednn_made *made, draft *d, dnnl_engine_t engine, dnnl_stream_t stream,
                         const uma_onednn_spec *spec, const void *weights)
{
    static const int numbers[UMA_ONEDNN_ROLES] = {UMA_DNNL_ARG_SRC, UMA_DNNL_ARG_WEIGHTS, UMA_DNNL_ARG_BIAS,
                                                  UMA_DNNL_ARG_SRC_1, UMA_DNNL_ARG_DST};
    const struct dnnl_memory_desc *scratchpad;
    int i;

    for (i = 0; i < UMA_ONEDNN_ROLES; i++) {
        const struct dnnl_memory_desc *desc = d->tensor[i];
        int arg = numbers[i];

        if (desc == NULL) continue;
        if (i == UMA_ONEDNN_WEIGHTS && d->any_weights != NULL) {
            desc = dnnl_primitive_desc_query_md(d->desc, UMA_DNNL_WEIGHTS_MD, 0);
            if (!dnnl_memory_desc_equal(desc, d->tensor[i])) UMA_TRY(pack(made, d, engine, stream, desc, weights));
        }
        if (made->memory[i] == NULL) UMA_TRY(dnnl_memory_create(&made->memory[i], desc, engine, NULL));
        /* What a post-op takes is called after it; there is one of these at most, the first. */
        if (i == UMA_ONEDNN_OTHER && spec->n_posts > 0) arg |= UMA_DNNL_ARG_POST_OP;
        add_arg(made, arg, made->memory[i]);
    }
    if (spec->zero_point != 0) {
        const dnnl_dims_t one = {1};

        made->zero_point = (int32_t)spec->zero_point;
        UMA_TRY(dnnl_memory_desc_create_with_strides(&d->zero_points, 1, one, UMA_DNNL_S32, one));
        UMA_TRY(dnnl_memory_create(&made->zero_points, d->zero_points, engine, &made->zero_point));
        add_arg(made, UMA_DNNL_ARG_ZERO_POINTS | UMA_DNNL_ARG_SRC, made->zero_points);
    }
    scratchpad = dnnl_primitive_desc_query_md(d->desc, UMA_DNNL_SCRATCHPAD_MD, 0);
    made->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    if (made->scratchpad_bytes > 0) {
        UMA_TRY(dnnl_memory_create(&made->scratchpad, scratchpad, engine, NULL));
        add_arg(made, UMA_DNNL_ARG_SCRATCHPAD, made->scratchpad);
    }
    return 0;
}

static int32_t make(uma_onednn_made *made, draft *d, dnnl_engine_t engine, dnnl_stream_t stream,
                    const uma_onednn_spec *spec, const void *weights)
{
    const uma_onednn_tensor *tensors[UMA_ONEDNN_ROLES];
    int i;

    tensors[UMA_ONEDNN_SRC] = &spec->src;
    tensors[UMA_ONEDNN_WEIGHTS] = &spec->weights;
    tensors[UMA_ONEDNN_BIAS] = &spec->bias;
    tensors[UMA_ONEDNN_OTHER] = &spec->other;
    tensors[UMA_ONEDNN_DST] = &spec->dst;
    /* Without these instructions the library adds products of bytes in 16 bits, where they do not fit. */
    if (spec->weights.rank != 0 && spec->src.dtype != UMA_DNNL_F32 &&
        (dnnl_get_effective_cpu_isa() & UMA_DNNL_VNNI) == 0) {
        return UMA_ONEDNN_FAULT_INT8;
    }
    for (i = 0; i < UMA_ONEDNN_ROLES; i++) UMA_TRY(describe(&d->tensor[i], tensors[i]));
    if (spec->constant_weights) UMA_TRY(describe_any(&d->any_weights, &spec->weights));
    UMA_TRY(make_attr(d, spec));
    UMA_TRY(make_desc(d, engine, spec));
    UMA_TRY(dnnl_primitive_create(&made->primitive, d->desc));
    return make_args(made, d, engine, stream, spec, weights);
}

int32_t uma_onednn_make(uma_onednn_made *made, dnnl_engine_t engine, dnnl_stream_t stream, const uma_onednn_spec *spec,
                        const void *weights)
{
    draft d;
    int32_t code;
    int i;

    memset(&d, 0, sizeof d);
    memcpy(made->key, spec->key, sizeof made->key);
    code = make(made, &d, engine, stream, spec, weights);
    if (d.desc != NULL) dnnl_primitive_desc_destroy(d.desc);
    if (d.attr != NULL) dnnl_primitive_attr_destroy(d.attr);
    if (d.posts != NULL) dnnl_post_ops_destroy(d.posts);
    if (d.zero_points != NULL) dnnl_memory_desc_destroy(d.zero_points);
    if (d.any_weights != NULL) dnnl_memory_desc_destroy(d.any_weights);
    for (i = 0; i < UMA_ONEDNN_ROLES; i++) {
        if (d.tensor[i] != NULL) dnnl_memory_desc_destroy(d.tensor[i]);
    }
    return code;
}

void uma_onednn_drop(uma_onednn_made *made)
{
    int i;

    if (made->primitive != NULL) dnnl_primitive_destroy(made->primitive);
    if (made->zero_points != NULL) dnnl_memory_destroy(made->zero_points);
    if (made->scratchpad != NULL) dnnl_memory_destroy(made->scratchpad);
    for (i = 0; i < UMA_ONEDNN_ROLES; i++) {
        if (made->memory[i] != NULL) dnnl_memory_destroy(made->memory[i]);
    }
}
