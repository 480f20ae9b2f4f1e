/* What cblas_sgemm does, one step at a time, for callers that keep to the rules: others are stopped. */
#include <stdio.h>
#include <stdlib.h>

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "cblas_sgemm: %s\n", what);
        abort();
    }
}

static float at(const float *x, int trans, int ld, int row, int column)
{
    return trans == 112 ? x[(long)column * ld + row] : x[(long)row * ld + column];
}

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc)
{
    int i, j, l;

    check(order == 101, "order");
    check((trans_a == 111 || trans_a == 112) && (trans_b == 111 || trans_b == 112), "transposition");
    check(m > 0 && n > 0 && k > 0, "size");
    check(lda >= (trans_a == 111 ? k : m), "lda");
    check(ldb >= (trans_b == 111 ? n : k), "ldb");
    check(ldc >= n, "ldc");
    for (i = 0; i < m; i++) {
        for (j = 0; j < n; j++) {
            double sum = 0.0;

            for (l = 0; l < k; l++) sum += (double)at(a, trans_a, lda, i, l) * at(b, trans_b, ldb, l, j);
            /* With beta = 0 what c holds is not looked at: it may be anything. */
            c[(long)i * ldc + j] = (float)(alpha * sum + (beta == 0.0f ? 0.0 : beta * c[(long)i * ldc + j]));
        }
    }
}
