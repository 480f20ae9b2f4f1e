/* The interface of oneDNN without what is behind it. It counts what is made and dropped, and fails in the call that
 * FAKE_DNNL_FAILS names, the FAKE_DNNL_NTH one of its kind (1 by default). Weights are packed: "any" is another layout. */
#include "uma_onednn_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int alive, calls;

static int said(const char *name)
{
    const char *fails = getenv("FAKE_DNNL_FAILS"), *nth = getenv("FAKE_DNNL_NTH");

    if (fails == NULL || strcmp(fails, name) != 0) return 0;
    return ++calls == (nth == NULL ? 1 : atoi(nth)) ? 5 : 0;
}

static int made(const char *name, void **to)
{
    const int code = said(name);

    if (code == 0) {
        *to = calloc(1, 64);
        alive++;
    }
    return code;
}

static int dropped(void *what)
{
    free(what);
    alive--;
    return 0;
}

#define MAKE(name, to)                                                                                                 \
    void *what = NULL;                                                                                                 \
    const int code = made(name, &what);                                                                                \
    if (code == 0) *(to) = what;                                                                                       \
    return code

const dnnl_version_t *dnnl_version(void)
{
    static dnnl_version_t version = {0, 2, 0, "", 0, 0};

    version.major = getenv("FAKE_DNNL_VERSION") != NULL ? atoi(getenv("FAKE_DNNL_VERSION")) : 3;
    return &version;
}

int dnnl_get_effective_cpu_isa(void)
{
    return getenv("FAKE_DNNL_ISA") != NULL ? atoi(getenv("FAKE_DNNL_ISA")) : 0x67;
}

int dnnl_engine_create(dnnl_engine_t *engine, int kind, size_t index)
{
    (void)kind, (void)index, (void)(calls = 0);
    MAKE("dnnl_engine_create", engine);
}

int dnnl_engine_destroy(dnnl_engine_t engine)
{
    dropped(engine);
    if (alive != 0) {
        fprintf(stderr, "%d things of the library are left\n", alive);
        abort();
    }
    return 0;
}

int dnnl_stream_create(dnnl_stream_t *stream, dnnl_engine_t engine, unsigned flags)
{
    (void)engine, (void)flags;
    MAKE("dnnl_stream_create", stream);
}

int dnnl_stream_wait(dnnl_stream_t stream)
{
    (void)stream;
    return said("dnnl_stream_wait");
}

int dnnl_stream_destroy(dnnl_stream_t stream)
{
    return dropped(stream);
}

int dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t *desc, int rank, const dnnl_dims_t dims, int dtype,
                                         const dnnl_dims_t strides)
{
    (void)rank, (void)dims, (void)dtype, (void)strides;
    MAKE("dnnl_memory_desc_create_with_strides", desc);
}

int dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *desc, int rank, const dnnl_dims_t dims, int dtype, int tag)
{
    (void)rank, (void)dims, (void)dtype, (void)tag;
    MAKE("dnnl_memory_desc_create_with_tag", desc);
}

int dnnl_memory_desc_destroy(dnnl_memory_desc_t desc)
{
    return dropped(desc);
}

int dnnl_memory_desc_equal(const struct dnnl_memory_desc *a, const struct dnnl_memory_desc *b)
{
    return a == b;
}

size_t dnnl_memory_desc_get_size(const struct dnnl_memory_desc *desc)
{
    (void)desc;
    return 4096;
}

int dnnl_memory_create(dnnl_memory_t *memory, const struct dnnl_memory_desc *desc, dnnl_engine_t engine, void *at)
{
    (void)desc, (void)engine, (void)at;
    MAKE("dnnl_memory_create", memory);
}

int dnnl_memory_destroy(dnnl_memory_t memory)
{
    return dropped(memory);
}

int dnnl_memory_set_data_handle(dnnl_memory_t memory, void *at)
{
    (void)memory, (void)at;
    return said("dnnl_memory_set_data_handle");
}

int dnnl_primitive_attr_create(dnnl_primitive_attr_t *attr)
{
    MAKE("dnnl_primitive_attr_create", attr);
}

int dnnl_primitive_attr_destroy(dnnl_primitive_attr_t attr)
{
    return dropped(attr);
}

int dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t attr, int mode)
{
    (void)attr, (void)mode;
    return said("dnnl_primitive_attr_set_scratchpad_mode");
}

int dnnl_primitive_attr_set_zero_points_mask(dnnl_primitive_attr_t attr, int arg, int mask)
{
    (void)attr, (void)arg, (void)mask;
    return said("dnnl_primitive_attr_set_zero_points_mask");
}

int dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t attr, const struct dnnl_post_ops *ops)
{
    (void)attr, (void)ops;
    return said("dnnl_primitive_attr_set_post_ops");
}

int dnnl_post_ops_create(dnnl_post_ops_t *ops)
{
    MAKE("dnnl_post_ops_create", ops);
}

int dnnl_post_ops_destroy(dnnl_post_ops_t ops)
{
    return dropped(ops);
}

int dnnl_post_ops_append_eltwise(dnnl_post_ops_t ops, int alg, float alpha, float beta)
{
    (void)ops, (void)alg, (void)alpha, (void)beta;
    return said("dnnl_post_ops_append_eltwise");
}

int dnnl_post_ops_append_binary(dnnl_post_ops_t ops, int alg, const struct dnnl_memory_desc *other)
{
    (void)ops, (void)alg, (void)other;
    return said("dnnl_post_ops_append_binary");
}

int dnnl_convolution_forward_primitive_desc_create(dnnl_primitive_desc_t *made_, dnnl_engine_t engine, int prop, int alg,
                                                   const struct dnnl_memory_desc *src,
                                                   const struct dnnl_memory_desc *weights,
                                                   const struct dnnl_memory_desc *bias,
                                                   const struct dnnl_memory_desc *dst, const dnnl_dims_t strides,
                                                   const dnnl_dims_t dilates, const dnnl_dims_t before,
                                                   const dnnl_dims_t after, const struct dnnl_primitive_attr *attr)
{
    (void)engine, (void)prop, (void)alg, (void)src, (void)weights, (void)bias, (void)dst, (void)strides;
    (void)dilates, (void)before, (void)after, (void)attr;
    MAKE("dnnl_convolution_forward_primitive_desc_create", made_);
}

int dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *made_, dnnl_engine_t engine,
                                      const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *weights,
                                      const struct dnnl_memory_desc *bias, const struct dnnl_memory_desc *dst,
                                      const struct dnnl_primitive_attr *attr)
{
    (void)engine, (void)src, (void)weights, (void)bias, (void)dst, (void)attr;
    MAKE("dnnl_matmul_primitive_desc_create", made_);
}

int dnnl_pooling_forward_primitive_desc_create(dnnl_primitive_desc_t *made_, dnnl_engine_t engine, int prop, int alg,
                                               const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *dst,
                                               const dnnl_dims_t strides, const dnnl_dims_t kernel,
                                               const dnnl_dims_t dilation, const dnnl_dims_t before,
                                               const dnnl_dims_t after, const struct dnnl_primitive_attr *attr)
{
    (void)engine, (void)prop, (void)alg, (void)src, (void)dst, (void)strides, (void)kernel, (void)dilation;
    (void)before, (void)after, (void)attr;
    MAKE("dnnl_pooling_forward_primitive_desc_create", made_);
}

int dnnl_eltwise_forward_primitive_desc_create(dnnl_primitive_desc_t *made_, dnnl_engine_t engine, int prop, int alg,
                                               const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *dst,
                                               float alpha, float beta, const struct dnnl_primitive_attr *attr)
{
    (void)engine, (void)prop, (void)alg, (void)src, (void)dst, (void)alpha, (void)beta, (void)attr;
    MAKE("dnnl_eltwise_forward_primitive_desc_create", made_);
}

int dnnl_binary_primitive_desc_create(dnnl_primitive_desc_t *made_, dnnl_engine_t engine, int alg,
                                      const struct dnnl_memory_desc *left, const struct dnnl_memory_desc *right,
                                      const struct dnnl_memory_desc *dst, const struct dnnl_primitive_attr *attr)
{
    (void)engine, (void)alg, (void)left, (void)right, (void)dst, (void)attr;
    MAKE("dnnl_binary_primitive_desc_create", made_);
}

int dnnl_softmax_forward_primitive_desc_create(dnnl_primitive_desc_t *made_, dnnl_engine_t engine, int prop, int alg,
                                               const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *dst,
                                               int axis, const struct dnnl_primitive_attr *attr)
{
    (void)engine, (void)prop, (void)alg, (void)src, (void)dst, (void)axis, (void)attr;
    MAKE("dnnl_softmax_forward_primitive_desc_create", made_);
}

int dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t *made_, const struct dnnl_memory_desc *from,
                                       dnnl_engine_t from_engine, const struct dnnl_memory_desc *to,
                                       dnnl_engine_t to_engine, const struct dnnl_primitive_attr *attr)
{
    (void)from, (void)from_engine, (void)to, (void)to_engine, (void)attr;
    MAKE("dnnl_reorder_primitive_desc_create", made_);
}

const struct dnnl_memory_desc *dnnl_primitive_desc_query_md(const struct dnnl_primitive_desc *desc, int what, int index)
{
    (void)what, (void)index;
    return (const struct dnnl_memory_desc *)(const void *)desc;
}

int dnnl_primitive_desc_destroy(dnnl_primitive_desc_t desc)
{
    return dropped(desc);
}

int dnnl_primitive_create(dnnl_primitive_t *primitive, const struct dnnl_primitive_desc *desc)
{
    (void)desc;
    MAKE("dnnl_primitive_create", primitive);
}

int dnnl_primitive_execute(const struct dnnl_primitive *primitive, dnnl_stream_t stream, int count,
                           const dnnl_exec_arg_t *args)
{
    (void)primitive, (void)stream, (void)count, (void)args;
    return said("dnnl_primitive_execute");
}

int dnnl_primitive_destroy(dnnl_primitive_t primitive)
{
    return dropped(primitive);
}
