// Interfaces inside the package. Shapes and formulas are in doc.go.
#ifndef GORBIT_KERNELS_H_
#define GORBIT_KERNELS_H_

#include <stdbool.h>
#include <stdint.h>

// gorbit_parallel calls task(argument, i) for every i from 0 to n - 1, on several
// threads. Which thread makes which call is left open: tasks write to places of
// their own, so that the result does not depend on it.
void gorbit_parallel(int64_t n, void (*task)(void* argument, int64_t i), void* argument);

// gorbit_parallel_update is gorbit_parallel for what is done when all lanes are.
void gorbit_parallel_update(int64_t n, void (*task)(void* argument, int64_t i), void* argument);

// gorbit_threads sets how many threads a call may use, and one of the update; 0 is one
// per core.
void gorbit_threads(int n, int update);

// gorbit_scratch returns memory of the calling thread for at least n floats,
// aligned to 64 bytes, valid until the thread's next call; NULL if there is none.
float* gorbit_scratch(int64_t n);

// Where a site's random numbers begin, and what dropout does with them.
typedef struct {
  uint64_t key, low, high;  // Philox' key and first counter
  int32_t threshold;        // numbers below it are dropped
  float factor;             // multiplies what is kept
  bool on;                  // whether anything is dropped
} Dropout;

// Rows of one task where sums over rows are made: partial sums of fixed blocks,
// added up in order, are the same on any number of threads.
enum { kBlockRows = 32, kChunk = 1 << 15 };

// Rows of attention weights whose random numbers are drawn together.
enum { kDrawnRows = 8 };

typedef struct {
  int64_t rows, width;
  const float *x, *dy;
  float *y, *dx, *partial;  // partial: [blocks, width]
} Gelu;

typedef struct {
  int64_t rows, width;
  const float *x, *residual, *scale, *offset, *dy;
  float epsilon;
  Dropout dropout;
  float *y, *normalized, *reciprocal, *dx, *dresidual;
  float* partial;  // [blocks, 3, width]: of bias, scale, offset
  bool failed;
} Norm;

// A run of positions of one row that see each other: those of one sequence, or,
// where a row's sequences are not contiguous, all that is no padding.
typedef struct {
  int64_t row, column, length;
  const int32_t* ids;  // of the run, to compare; NULL if all are equal
} Run;

typedef struct {
  int64_t row_length, width, heads, runs;
  const Run* run;
  const float *qkv, *context, *saved, *dy;
  Dropout dropout;
  float *y, *save, *dqkv, *partial;  // partial: [runs, 3 * width]
  bool failed;
} Attention;

typedef struct {
  int64_t n;
  float *variable, *m, *v;
  const float* gradient;
  float scale, rate, decay, beta_1, beta_2, epsilon;
} Adam;

typedef struct {
  const float* x;
  int64_t n;
  double* partial;
} Squares;

// The tasks of gorbit_parallel, for one instruction set.
typedef struct {
  const char* name;
  void (*gelu)(void*, int64_t);
  void (*gelu_gradient)(void*, int64_t);
  void (*norm)(void*, int64_t);
  void (*norm_gradient)(void*, int64_t);
  void (*attention)(void*, int64_t);
  void (*attention_gradient)(void*, int64_t);
  void (*adam)(void*, int64_t);
  void (*squares)(void*, int64_t);
} Tasks;

// gorbit_use chooses an instruction set by its name, "" for the widest. It returns
// false where this processor does not have it. It is not for several threads.
bool gorbit_use(const char* name);

// gorbit_tasks returns the tasks for the chosen instructions.
const Tasks* gorbit_tasks(void);

#endif
