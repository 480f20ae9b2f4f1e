#include "uma_blas.h"

#include <stddef.h>
#include <string.h>

#include "uma_blas_library.h"

/* As cblas.h has them, which need not be installed where the library is. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

void UMA_BLAS_SGEMM(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                    const float *b, int ldb, float beta, float *c, int ldc);

void uma_blas_matmul(const float *a, const float *b, const float *bias, float *out, int m, int n, int k, int trans_a,
                     int lda, int trans_b, int ldb, int count0, int64_t a0, int64_t b0, int count1, int64_t a1,
                     int64_t b1, int count2, int64_t a2, int64_t b2)
{
    const int how_a = trans_a ? TRANS : NO_TRANS, how_b = trans_b ? TRANS : NO_TRANS;
    int i, j, l, row;

    for (i = 0; i < count0; i++) {
        for (j = 0; j < count1; j++) {
            for (l = 0; l < count2; l++) {
                const float *const left = a + i * a0 + j * a1 + l * a2;
                const float *const right = b + i * b0 + j * b1 + l * b2;

                for (row = 0; row < m && bias != NULL; row++) {
                    memcpy(out + (ptrdiff_t)row * n, bias, (size_t)n * sizeof *out);
                }
                UMA_BLAS_SGEMM(ROW_MAJOR, how_a, how_b, m, n, k, 1.0f, left, lda, right, ldb,
                               bias != NULL ? 1.0f : 0.0f, out, n);
                out += (ptrdiff_t)m * n;
            }
        }
    }
}
