// A pool of threads that share the tasks of one call.
//
// TensorFlow's C API does not let kernels use TensorFlow's threads. The threads of the pool sleep
// while there is no work. If the pool is in use because two kernels run at once, the second call
// runs its tasks in its own thread.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels.h"

enum { kSpins = 4000, kMaxThreads = 256 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;  // held by the call that uses the pool
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static int workers;
static atomic_int helpers = kMaxThreads;         // most workers for one call
static atomic_int update_helpers = kMaxThreads;  // most workers for a call of the update
static atomic_int graphs;                        // runs of graphs that divide the cores among them

// The current call. A worker joins it while it is open. The call does not wait for workers that
// come too late.
static struct {
  void (*task)(void*, int64_t);
  void* argument;
  int64_t n;
  int helpers;
  atomic_int_fast64_t next;  // next task to run
  bool open;                 // guarded by mutex
  atomic_int busy;           // workers that joined; grows only while open
} job;
static atomic_uint_fast64_t call;  // its number

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void work(void) {
  for (;;) {
    int64_t i = atomic_fetch_add_explicit(&job.next, 1, memory_order_relaxed);
    if (i >= job.n) return;
    job.task(job.argument, i);
  }
}

static void* worker(void* unused) {
  (void)unused;
  uint_fast64_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && atomic_load(&call) == seen; i++) relax();
    pthread_mutex_lock(&mutex);
    while (atomic_load(&call) == seen) pthread_cond_wait(&wake, &mutex);
    seen = atomic_load(&call);
    bool part = job.open && atomic_load(&job.busy) < job.helpers;
    if (part) atomic_fetch_add(&job.busy, 1);
    pthread_mutex_unlock(&mutex);
    if (part) {
      work();
      atomic_fetch_sub(&job.busy, 1);
    }
  }
  return NULL;
}

static void start(void) {
  cpu_set_t set;
  int cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  if (cores > kMaxThreads) cores = kMaxThreads;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (int i = 1; i < cores; i++) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, worker, NULL) != 0) break;
    workers++;
  }
  pthread_attr_destroy(&attributes);
}

void gorbit_threads(int n, int update) {
  atomic_store(&helpers, n > 0 ? n - 1 : kMaxThreads);
  atomic_store(&update_helpers, update > 0 ? update - 1 : kMaxThreads);
}

static void share(int most, int64_t n, void (*task)(void*, int64_t), void* argument) {
  pthread_once(&once, start);
  if (n < 2 || workers == 0 || most == 0 || pthread_mutex_trylock(&taken) != 0) {
    for (int64_t i = 0; i < n; i++) task(argument, i);
    return;
  }
  pthread_mutex_lock(&mutex);
  job.task = task;
  job.argument = argument;
  job.n = n;
  job.helpers = most;
  atomic_store(&job.next, 0);
  job.open = true;
  atomic_fetch_add(&call, 1);
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&mutex);
  work();
  pthread_mutex_lock(&mutex);
  job.open = false;
  pthread_mutex_unlock(&mutex);
  for (int i = 0; atomic_load(&job.busy) > 0; i++) {
    if (i < kSpins) {
      relax();
    } else {
      sched_yield();
    }
  }
  pthread_mutex_unlock(&taken);
}

void gorbit_running(int n) { atomic_fetch_add(&graphs, n); }

void gorbit_parallel(int64_t n, void (*task)(void*, int64_t), void* argument) {
  int most = atomic_load(&helpers), runs = atomic_load(&graphs);
  if (runs > 0) {
    pthread_once(&once, start);
    int each = (workers + 1) / runs - 1;
    most = each < 0 ? 0 : each < most ? each : most;
  }
  share(most, n, task, argument);
}

void gorbit_parallel_update(int64_t n, void (*task)(void*, int64_t), void* argument) {
  share(atomic_load(&update_helpers), n, task, argument);
}

static _Thread_local struct {
  float* memory;
  int64_t n;
} scratch;

float* gorbit_scratch(int64_t n) {
  if (n > scratch.n) {
    void* memory = NULL;
    if (posix_memalign(&memory, 64, (size_t)n * sizeof(float)) != 0) return NULL;
    free(scratch.memory);
    scratch.memory = memory;
    scratch.n = n;
  }
  return scratch.memory;
}
