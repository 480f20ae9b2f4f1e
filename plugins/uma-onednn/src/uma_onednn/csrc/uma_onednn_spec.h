/* How a model describes an operation, in words of 64 bits: what operation.py writes. */
#ifndef UMA_ONEDNN_SPEC_H
#define UMA_ONEDNN_SPEC_H

#include <stdint.h>

enum { UMA_ONEDNN_CONVOLUTION = 1, UMA_ONEDNN_MATMUL, UMA_ONEDNN_POOL, UMA_ONEDNN_ELTWISE, UMA_ONEDNN_BINARY,
       UMA_ONEDNN_SOFTMAX /* along dimension 1 */ };
enum { UMA_ONEDNN_POST_ELTWISE = 1, UMA_ONEDNN_POST_BINARY };
enum { UMA_ONEDNN_RANK = 6, UMA_ONEDNN_WINDOW = 3, UMA_ONEDNN_POSTS = 2 };

typedef struct {
    int64_t rank; /* 0: there is none */
    int64_t dtype;
    int64_t dims[UMA_ONEDNN_RANK];
    int64_t strides[UMA_ONEDNN_RANK];
} uma_onednn_tensor;

typedef struct {
    int64_t kind;
    int64_t alg;
    double alpha;
    double beta;
} uma_onednn_step;

typedef struct {
    uint64_t key[2]; /* a digest of all that follows, and of the constants: one key is one operation */
    uma_onednn_step step;
    uma_onednn_tensor src;
    uma_onednn_tensor weights;
    uma_onednn_tensor bias;
    uma_onednn_tensor other;
    uma_onednn_tensor dst;
    int64_t strides[UMA_ONEDNN_WINDOW];
    int64_t dilation[UMA_ONEDNN_WINDOW]; /* as the library counts: 0 for none */
    int64_t before[UMA_ONEDNN_WINDOW];
    int64_t after[UMA_ONEDNN_WINDOW];
    int64_t kernel[UMA_ONEDNN_WINDOW];
    int64_t constant_weights; /* they may be packed, once */
    int64_t zero_point;       /* of src */
    int64_t n_posts;
    uma_onednn_step posts[UMA_ONEDNN_POSTS];
} uma_onednn_spec;

#endif
