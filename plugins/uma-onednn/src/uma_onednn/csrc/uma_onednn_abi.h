/* What is called of oneDNN 3, as its application binary interface has it: no header of the library is needed where a
 * model is compiled. The numbers are those that every 3.x has. */
#ifndef UMA_ONEDNN_ABI_H
#define UMA_ONEDNN_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { UMA_DNNL_SUCCESS = 0 };
enum { UMA_DNNL_INFERENCE = 96, UMA_DNNL_CPU = 1, UMA_DNNL_IN_ORDER = 1, UMA_DNNL_ANY = 1, UMA_DNNL_SCRATCHPAD_USER = 1 };
enum { UMA_DNNL_WEIGHTS_MD = 131, UMA_DNNL_SCRATCHPAD_MD = 136 };
enum {
    UMA_DNNL_ARG_SRC = 1,
    UMA_DNNL_ARG_SRC_1 = 2,
    UMA_DNNL_ARG_DST = 17,
    UMA_DNNL_ARG_WEIGHTS = 33,
    UMA_DNNL_ARG_BIAS = 41,
    UMA_DNNL_ARG_SCRATCHPAD = 80,
    UMA_DNNL_ARG_ZERO_POINTS = 8192,
    UMA_DNNL_ARG_POST_OP = 32768 /* times the number of the post-op, from 1 on */
};
enum { UMA_DNNL_F32 = 3, UMA_DNNL_S32 = 4 };
enum { UMA_DNNL_VNNI = 0x08 | 0x40 }; /* of the instruction sets: 8-bit dot products, of AVX2 and of AVX-512 */
enum { UMA_DNNL_MAX_DIMS = 12 };

#define UMA_DNNL_ALLOCATE ((void *)~(size_t)0)

typedef int64_t dnnl_dims_t[UMA_DNNL_MAX_DIMS];
typedef struct dnnl_engine *dnnl_engine_t;
typedef struct dnnl_stream *dnnl_stream_t;
typedef struct dnnl_memory_desc *dnnl_memory_desc_t;
typedef struct dnnl_memory *dnnl_memory_t;
typedef struct dnnl_primitive_desc *dnnl_primitive_desc_t;
typedef struct dnnl_primitive *dnnl_primitive_t;
typedef struct dnnl_primitive_attr *dnnl_primitive_attr_t;
typedef struct dnnl_post_ops *dnnl_post_ops_t;

typedef struct {
    int arg;
    dnnl_memory_t memory;
} dnnl_exec_arg_t;

typedef struct {
    int major;
    int minor;
    int patch;
    const char *hash;
    unsigned cpu_runtime;
    unsigned gpu_runtime;
} dnnl_version_t;

const dnnl_version_t *dnnl_version(void);
int dnnl_get_effective_cpu_isa(void);

int dnnl_engine_create(dnnl_engine_t *engine, int kind, size_t index);
int dnnl_engine_destroy(dnnl_engine_t engine);
int dnnl_stream_create(dnnl_stream_t *stream, dnnl_engine_t engine, unsigned flags);
int dnnl_stream_wait(dnnl_stream_t stream);
int dnnl_stream_destroy(dnnl_stream_t stream);

int dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t *desc, int rank, const dnnl_dims_t dims, int dtype,
                                         const dnnl_dims_t strides);
int dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *desc, int rank, const dnnl_dims_t dims, int dtype, int tag);
int dnnl_memory_desc_destroy(dnnl_memory_desc_t desc);
int dnnl_memory_desc_equal(const struct dnnl_memory_desc *a, const struct dnnl_memory_desc *b);
size_t dnnl_memory_desc_get_size(const struct dnnl_memory_desc *desc);
int dnnl_memory_create(dnnl_memory_t *memory, const struct dnnl_memory_desc *desc, dnnl_engine_t engine, void *at);
int dnnl_memory_destroy(dnnl_memory_t memory);
int dnnl_memory_set_data_handle(dnnl_memory_t memory, void *at);

int dnnl_primitive_attr_create(dnnl_primitive_attr_t *attr);
int dnnl_primitive_attr_destroy(dnnl_primitive_attr_t attr);
int dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t attr, int mode);
int dnnl_primitive_attr_set_zero_points_mask(dnnl_primitive_attr_t attr, int arg, int mask);
int dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t attr, const struct dnnl_post_ops *ops);
int dnnl_post_ops_create(dnnl_post_ops_t *ops);
int dnnl_post_ops_destroy(dnnl_post_ops_t ops);
int dnnl_post_ops_append_eltwise(dnnl_post_ops_t ops, int alg, float alpha, float beta);
int dnnl_post_ops_append_binary(dnnl_post_ops_t ops, int alg, const struct dnnl_memory_desc *other);

int dnnl_convolution_forward_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine, int prop, int alg,
                                                   const struct dnnl_memory_desc *src,
                                                   const struct dnnl_memory_desc *weights,
                                                   const struct dnnl_memory_desc *bias,
                                                   const struct dnnl_memory_desc *dst, const dnnl_dims_t strides,
                                                   const dnnl_dims_t dilates, const dnnl_dims_t before,
                                                   const dnnl_dims_t after, const struct dnnl_primitive_attr *attr);
int dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                      const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *weights,
                                      const struct dnnl_memory_desc *bias, const struct dnnl_memory_desc *dst,
                                      const struct dnnl_primitive_attr *attr);
int dnnl_pooling_forward_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine, int prop, int alg,
                                               const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *dst,
                                               const dnnl_dims_t strides, const dnnl_dims_t kernel,
                                               const dnnl_dims_t dilation, const dnnl_dims_t before,
                                               const dnnl_dims_t after, const struct dnnl_primitive_attr *attr);
int dnnl_eltwise_forward_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine, int prop, int alg,
                                               const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *dst,
                                               float alpha, float beta, const struct dnnl_primitive_attr *attr);
int dnnl_binary_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine, int alg,
                                      const struct dnnl_memory_desc *left, const struct dnnl_memory_desc *right,
                                      const struct dnnl_memory_desc *dst, const struct dnnl_primitive_attr *attr);
int dnnl_softmax_forward_primitive_desc_create(dnnl_primitive_desc_t *made, dnnl_engine_t engine, int prop, int alg,
                                               const struct dnnl_memory_desc *src, const struct dnnl_memory_desc *dst,
                                               int axis, const struct dnnl_primitive_attr *attr);
int dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t *made, const struct dnnl_memory_desc *from,
                                       dnnl_engine_t from_engine, const struct dnnl_memory_desc *to,
                                       dnnl_engine_t to_engine, const struct dnnl_primitive_attr *attr);
const struct dnnl_memory_desc *dnnl_primitive_desc_query_md(const struct dnnl_primitive_desc *desc, int what,
                                                            int index);
int dnnl_primitive_desc_destroy(dnnl_primitive_desc_t desc);
int dnnl_primitive_create(dnnl_primitive_t *made, const struct dnnl_primitive_desc *desc);
int dnnl_primitive_execute(const struct dnnl_primitive *primitive, dnnl_stream_t stream, int count,
                           const dnnl_exec_arg_t *args);
int dnnl_primitive_destroy(dnnl_primitive_t primitive);

#endif
