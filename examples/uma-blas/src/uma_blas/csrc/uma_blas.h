#ifndef UMA_BLAS_H
#define UMA_BLAS_H

#include <stdint.h>

/* out = a * b + bias, for each of count0 * count1 * count2 products; out is dense and in row-major order.
 *
 * Of each product, a is m x k, in row-major order with lda elements from row to row, or where trans_a is 1 stored as its
 * transpose, k x m. Likewise b, k x n. From product to product a goes on by a0, a1, a2 elements, b by b0, b1, b2; 0 is
 * for a matrix that all of them share. The bias, of n elements, is added to every row; NULL is for none. */
void uma_blas_matmul(const float *a, const float *b, const float *bias, float *out, int m, int n, int k, int trans_a,
                     int lda, int trans_b, int ldb, int count0, int64_t a0, int64_t b0, int count1, int64_t a1,
                     int64_t b1, int count2, int64_t a2, int64_t b2);

#endif
