/* See uma_pool.h.
 *
 * Each thread has a share of the iterations of a loop, which lie side by side, so that it finds in its cache what it
 * wrote there in the loop before. It takes them piece by piece, then what is left of the others' shares: a thread that the
 * system runs late, or not at all, holds nobody up by more than one piece.
 *
 * A number, the gate, says whether there is a loop, which one it is, and how many threads are at it. A thread enters by
 * adding itself to it, which fails once the loop is closed; whoever asked closes it, and waits until all have left.
 * Who waits looks for some time at what he waits for, and then sleeps.
 */
#define _POSIX_C_SOURCE 200809L

#include "uma_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "uma_math.h"

#if !defined(__GNUC__)
#error "the pool is for gcc and clang: it uses their atomic operations"
#endif

#define MAX_THREADS 256
#define INSIDE 0x7fffu /* of the gate: how many threads are at the loop, besides the one that asked */
#define OPEN 0x8000u   /* others may enter */
#define LOOP 16        /* from this bit on: which loop it is */
#define PIECES 8       /* of a share */
#define SPIN_NS 20000
#define LINE 64

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

typedef struct share {
    int64_t next; /* iteration that nobody has taken */
    int64_t end;
    unsigned char rest[LINE - 2 * sizeof(int64_t)];
} share;

typedef struct seat {
    struct uma_pool *pool;
    pthread_t thread;
    int32_t number;
} seat;

struct uma_pool {
    uint32_t gate;
    unsigned char rest[LINE - sizeof(uint32_t)];
    /* The loop; nobody is at it while it is changed. */
    uma_body body;
    const void *args;
    int64_t piece;
    uma_float_mode mode;
    uint32_t busy;     /* somebody asks */
    uint32_t sleepers; /* threads that sleep until there is a loop */
    uint32_t awaited;  /* who asked sleeps until all have left */
    uint32_t ending;
    uint32_t born; /* as of `forks` */
    int32_t threads;
    pthread_mutex_t mutex;
    pthread_cond_t begins, left;
    share *shares;
    seat *seats;
};

/* How often this process was forked from another: a child has the memory of its parent's pools, and not their threads. */
static uint32_t forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forked(void) { (void)__atomic_fetch_add(&forks, 1u, __ATOMIC_RELAXED); }

static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forked); }

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Runs what nobody has taken: of the thread's own share, then of the others'. */
static void take(uma_pool *pool, int32_t number)
{
    const int32_t threads = pool->threads;
    int32_t i;

    for (i = 0; i < threads; i++) {
        share *const from = &pool->shares[(number + i) % threads];

        for (;;) {
            const int64_t begin = __atomic_fetch_add(&from->next, pool->piece, __ATOMIC_RELAXED);
            const int64_t end = begin + pool->piece < from->end ? begin + pool->piece : from->end;

            if (begin >= from->end) break;
            pool->body(pool->args, (int32_t)begin, (int32_t)end);
        }
    }
}

/* Whether there is a loop other than the last one, that a thread may enter. */
static int begins(const uma_pool *pool, uint32_t last)
{
    const uint32_t gate = __atomic_load_n(&pool->gate, __ATOMIC_SEQ_CST);

    return (gate & OPEN) != 0 && gate >> LOOP != last;
}

static int ends(const uma_pool *pool) { return __atomic_load_n(&pool->ending, __ATOMIC_SEQ_CST) != 0; }

static int all_left(const uma_pool *pool) { return (__atomic_load_n(&pool->gate, __ATOMIC_SEQ_CST) & INSIDE) == 0; }

static void await_loop(uma_pool *pool, uint32_t last)
{
    const int64_t until = now_ns() + SPIN_NS;
    int32_t i;

    do {
        for (i = 0; i < 16; i++) {
            if (begins(pool, last) || ends(pool)) return;
            PAUSE();
        }
    } while (now_ns() < until);
    pthread_mutex_lock(&pool->mutex);
    (void)__atomic_fetch_add(&pool->sleepers, 1u, __ATOMIC_SEQ_CST);
    while (!begins(pool, last) && !ends(pool)) pthread_cond_wait(&pool->begins, &pool->mutex);
    (void)__atomic_fetch_sub(&pool->sleepers, 1u, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->mutex);
}

static void await_others(uma_pool *pool)
{
    const int64_t until = now_ns() + SPIN_NS;
    int32_t i;

    do {
        for (i = 0; i < 16; i++) {
            if (all_left(pool)) return;
            PAUSE();
        }
    } while (now_ns() < until);
    pthread_mutex_lock(&pool->mutex);
    __atomic_store_n(&pool->awaited, 1u, __ATOMIC_SEQ_CST);
    while (!all_left(pool)) pthread_cond_wait(&pool->left, &pool->mutex);
    __atomic_store_n(&pool->awaited, 0u, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *given)
{
    const seat *const own = given;
    uma_pool *const pool = own->pool;
    uint32_t last = 0;

    while (!ends(pool)) {
        uint32_t gate = __atomic_load_n(&pool->gate, __ATOMIC_RELAXED);

        if ((gate & OPEN) == 0 || gate >> LOOP == last) {
            await_loop(pool, last);
            continue;
        }
        if (!__atomic_compare_exchange_n(&pool->gate, &gate, gate + 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
        last = gate >> LOOP;
        uma_float_set(pool->mode);
        take(pool, own->number);
        gate = __atomic_fetch_sub(&pool->gate, 1u, __ATOMIC_SEQ_CST);
        if ((gate & (OPEN | INSIDE)) == 1 && __atomic_load_n(&pool->awaited, __ATOMIC_SEQ_CST) != 0) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->left);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
    return NULL;
}

/* Ends the first `count` of the threads besides the one that asks, which were begun, and frees the pool. */
static void dispose(uma_pool *pool, int32_t count)
{
    int32_t i;

    pthread_mutex_lock(&pool->mutex);
    __atomic_store_n(&pool->ending, 1u, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&pool->begins);
    pthread_mutex_unlock(&pool->mutex);
    for (i = 0; i < count; i++) pthread_join(pool->seats[i].thread, NULL);
    pthread_cond_destroy(&pool->left);
    pthread_cond_destroy(&pool->begins);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->seats);
    free(pool->shares);
    free(pool);
}

uma_pool *uma_pool_make(int32_t threads)
{
    sigset_t all, kept;
    uma_pool *pool;
    void *shares = NULL;
    int32_t i;
    int error = 0;

    if (threads < 1 || threads > MAX_THREADS) {
        errno = EINVAL;
        return NULL;
    }
    pthread_once(&once, watch_forks);
    pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->seats = calloc((size_t)threads, sizeof *pool->seats);
    if (pool->seats == NULL || posix_memalign(&shares, LINE, (size_t)threads * sizeof(share)) != 0) {
        free(pool->seats);
        free(pool);
        errno = ENOMEM;
        return NULL;
    }
    pool->shares = shares;
    pool->threads = threads;
    pool->born = __atomic_load_n(&forks, __ATOMIC_RELAXED);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->begins, NULL);
    pthread_cond_init(&pool->left, NULL);
    /* Signals are for the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    for (i = 0; i < threads - 1 && error == 0; i++) {
        pool->seats[i].pool = pool;
        pool->seats[i].number = i + 1;
        error = pthread_create(&pool->seats[i].thread, NULL, work, &pool->seats[i]);
    }
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (error == 0) return pool;
    dispose(pool, i - 1);
    errno = error;
    return NULL;
}

void uma_pool_run(void *given, uma_body body, const void *args, int32_t n)
{
    uma_pool *const pool = given;
    const int32_t threads = pool->threads;
    uint32_t gate;
    int32_t i;

    if (n == 1 || threads == 1 || pool->born != __atomic_load_n(&forks, __ATOMIC_RELAXED) ||
        __atomic_exchange_n(&pool->busy, 1u, __ATOMIC_ACQUIRE) != 0) {
        body(args, 0, n);
        return;
    }
    pool->body = body;
    pool->args = args;
    pool->piece = n / (PIECES * threads) > 0 ? n / (PIECES * threads) : 1;
    pool->mode = uma_float_now();
    for (i = 0; i < threads; i++) {
        pool->shares[i].end = (int64_t)n * (i + 1) / threads;
        __atomic_store_n(&pool->shares[i].next, (int64_t)n * i / threads, __ATOMIC_RELAXED);
    }
    gate = __atomic_load_n(&pool->gate, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->gate, ((gate >> LOOP) + 1) << LOOP | OPEN, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST) != 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->begins);
        pthread_mutex_unlock(&pool->mutex);
    }
    take(pool, 0);
    if ((__atomic_fetch_and(&pool->gate, ~OPEN, __ATOMIC_SEQ_CST) & INSIDE) != 0) await_others(pool);
    __atomic_store_n(&pool->busy, 0u, __ATOMIC_RELEASE);
}

void uma_pool_end(uma_pool *pool)
{
    if (pool == NULL || pool->born != __atomic_load_n(&forks, __ATOMIC_RELAXED)) return; /* the threads are elsewhere */
    dispose(pool, pool->threads - 1);
}
