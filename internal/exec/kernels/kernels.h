// Internal interfaces of the package. doc.go has the shapes and formulas.
#ifndef GORBIT_KERNELS_H_
#define GORBIT_KERNELS_H_

#include <stdbool.h>
#include <stdint.h>

// gorbit_parallel calls task(argument, i) for every i from 0 to n - 1, on several threads. Any
// thread may run any task. Each task writes to memory of its own, so the result does not depend on
// the threads.
void gorbit_parallel(int64_t n, void (*task)(void* argument, int64_t i), void* argument);

// gorbit_parallel_update is gorbit_parallel for the update, which runs after all lanes are done.
void gorbit_parallel_update(int64_t n, void (*task)(void* argument, int64_t i), void* argument);

// gorbit_threads sets how many threads a call may use: n in general, update for a call of the
// update. 0 means one per core.
void gorbit_threads(int n, int update);

// gorbit_running adds n to the runs of graphs that divide the cores: while there are any, a call uses at
// most its run's share of them, but for the update.
void gorbit_running(int n);

// gorbit_scratch returns memory of the calling thread for at least n floats,
// aligned to 64 bytes, valid until the thread's next call; NULL if there is none.
float* gorbit_scratch(int64_t n);

// gorbit_map returns zeros whose pages are those of a file without a name in a folder, all of them
// allocated on its disk; NULL, and errno, if that fails. gorbit_unmap frees them. gorbit_fetch has the
// system begin to read pages, and gorbit_drop takes them out of the memory of the process: both begin
// at the beginning of a page. gorbit_drop_all does it with all that is mapped. gorbit_is_mapped tells
// whether an address is one that gorbit_map returned.
void* gorbit_map(const char* folder, size_t bytes);
bool gorbit_is_mapped(const void* memory);
void gorbit_unmap(void* memory, size_t bytes, void* unused);
void gorbit_fetch(void* memory, size_t bytes);
void gorbit_drop(void* memory, size_t bytes);
void gorbit_drop_all(void);

// The random numbers of one dropout, and how they are used.
typedef struct {
  uint64_t key, low, high;  // Philox' key and first counter
  int32_t threshold;        // elements with a number below it are dropped
  float factor;             // multiplies the other elements
  bool on;                  // whether anything is dropped
} Dropout;

// Rows per task when summing over rows. Partial sums of fixed blocks, added in order, are the same
// for any number of threads.
enum { kBlockRows = 32, kChunk = 1 << 15 };

// Chunks of mapped memory that an update has in memory at once: 16 MiB of each tensor.
enum { kWindow = 128 };

// Rows of attention weights whose random numbers are drawn together.
enum { kDrawnRows = 8 };

// Rows of attention weights that are computed together, unless a window has fewer.
enum { kQueries = 512 };

typedef struct {
  int64_t rows, width;
  const void *x, *dy;  // these, y and dx are bfloat16 if narrow, and float32 if not
  void *y, *dx;
  float* partial;  // [blocks, width]
  bool narrow;
} Gelu;

typedef struct {
  int64_t rows, width;
  const void* x;  // x and dx are bfloat16 if narrow, and float32 if not
  const float *residual, *scale, *offset, *dy;
  float epsilon;
  Dropout dropout;
  void* dx;
  float *y, *normalized, *reciprocal, *dresidual;
  bool narrow;
  float* partial;  // [blocks, 3, width]: of bias, scale, offset
  bool failed;
} Norm;

// A run of positions in a row that attend to each other: those of one sequence or, if the sequences
// of the row are not contiguous, all that are not padding.
typedef struct {
  int64_t row, column, length;
  const int32_t* ids;  // sequence ids of the run; NULL if all are equal
} Run;

// A norm whose offset, mean and reciprocal may be NULL.
typedef struct {
  int64_t rows, width;
  const float *x, *scale, *offset, *dy;
  float epsilon;
  float *y, *mean, *reciprocal, *dx;
  float* partial;  // [blocks, width]: of scale
} ScaleNorm;

typedef struct {
  int64_t rows, width;
  const float *x, *residual;
  Dropout dropout;
  float* y;
  bool failed;
} Residual;

// width is that of the value and of the gate, which stand side by side in x.
typedef struct {
  int64_t rows, width;
  const float *x, *dy;
  Dropout dropout;
  float *y, *dx;
  bool failed;
} Geglu;

typedef struct {
  int64_t rows, width, heads, half;
  const float *x, *cosines, *sines;
  float* y;
} Rotary;

// Logits and what a loss makes of them: dlogits, the gradient, may be in the memory of the logits.
typedef struct {
  int64_t rows, width;
  const float *logits, *weights;
  const int32_t* labels;  // each below width
  float smoothing;
  float *losses, *right, *dlogits;
} TokenLosses;

// window is how far apart positions may be that attend to each other; 0 for any distance. If causal,
// none attends to those behind it. qkv, context, dy, y and dqkv are bfloat16 if narrow, and float32 if
// not. All is computed in float32.
typedef struct {
  int64_t row_length, width, heads, window, runs;
  const Run* run;
  bool narrow, causal;
  const void *qkv, *context, *dy;
  const float* saved;
  Dropout dropout;
  void *y, *dqkv;
  float *save, *partial;  // partial: [runs, 3 * width]
  bool failed;
} Attention;

typedef struct {
  int64_t n;
  float *variable, *m, *v;
  const float* gradient;
  float scale, rate, decay, beta_1, beta_2, epsilon;
} Adam;

typedef struct {
  int64_t n;
  float *variable, *m;
  const float* gradient;
  float scale, rate, decay, momentum, nesterov;
} Sgd;

typedef struct {
  int64_t n;
  float *variable, *m;
  const float* gradient;
  float scale, rate, decay, beta_1, beta_2;
} Lion;

typedef struct {
  const float* x;
  int64_t n;
  double* partial;
} Squares;

// A product of generation with few rows is made in groups of its terms: a task reads rows of the matrix
// that are next to each other, about kGroup bytes of them, kPanel rows at a time, which is what memory
// gives fastest, and kLeastPanels times as many at least, so that the sums are few beside the matrix. The
// sums of the groups are added in their order. With more rows a task computes kProductRows rows and
// kProductColumns columns, with the same sums, as it does with more than kFewest rows of a matrix of up to
// kSmallMatrix bytes: that is nearer to the core than sums that another core has made. kAhead is how many
// rows of keys or values before they are used a task asks for them.
enum { kFewest = 2, kSmallMatrix = 1 << 21, kFewRows = 16, kGroup = 110592, kPanel = 16, kLeastPanels = 3 };
enum { kProductRows = 128, kProductColumns = 96, kAhead = 12 };

// A product with a transposed matrix of up to so many terms is made of its columns, which a task lays side by
// side: of few terms, sums of vectors would be the most of it.
enum { kTurnedTerms = 512 };

// What is made of a product with its bias.
typedef enum { kNoActivation, kRelu, kGelu, kGeluTanh, kActivations } Activation;

// What a product of a part of the terms does with y: it is set, the terms are added to it one by one, or
// their sum is.
enum { kSet, kGoOn, kAdd };

// Positions of a sequence whose attention a task of generation computes, and numbers of a small task.
enum { kNextQueries = 32, kSmallChunk = 1 << 12 };

// w is [inner, width], or [width, inner] if it is transposed. With add, y holds what the product is added
// to; it is not transposed then. bias [width] is added last; NULL for none. group is the terms of a group,
// and partial [groups, rows, width] their sums, NULL unless there are few rows.
typedef struct {
  int64_t rows, inner, width, group;
  bool transposed, add, narrow;
  Activation activation;
  const float *x, *bias;
  const void* w;  // bfloat16 if narrow, and float32 if not
  float *y, *partial;
} Product;

// Products of the same rows. With gated they are two of one size, whose SwiGLU is made in the memory of
// the first.
typedef struct {
  int count;
  bool gated, failed;
  Product of[3];
  int64_t ends[3];  // the tasks of each and of those before it; gated ones have them together
} Products;

// The rows and columns of a product that a task computes, and the number of columns' parts.
typedef struct {
  int64_t row, column, rows, columns;
} Part;

static inline int64_t product_strips(const Product* p) {
  return (p->width + kProductColumns - 1) / kProductColumns;
}

static inline Part product_part(const Product* p, int64_t task) {
  int64_t strips = product_strips(p);
  Part t = {.row = task / strips * kProductRows, .column = task % strips * kProductColumns};
  t.rows = p->rows - t.row < kProductRows ? p->rows - t.row : kProductRows;
  t.columns = p->width - t.column < kProductColumns ? p->width - t.column : kProductColumns;
  return t;
}

typedef struct {
  int64_t n;
  const float *gate, *x;
  float* y;
} Swiglu;

// query and y are [B, tokens, width], key and value [B, columns, width * shared / heads], allowed
// [B, tokens, columns], and bias, unless it is NULL, [B, heads, tokens, columns]. parts is the tasks of a
// row for each head of keys.
//
// With slots, [B, columns], key and value are [any, width * shared / heads], and a row's keys and values
// are those of its slots. Instead of allowed there are positions then, [B, tokens]: a token sees the
// columns up to its own, and of these the last `window` alone, unless that is 0. Without positions it
// sees those whose slot is not 0.
typedef struct {
  int64_t tokens, columns, width, heads, shared, parts, window;
  const float *query, *key, *value, *bias;
  const bool* allowed;
  const int32_t *slots, *positions;
  float scale;
  float* y;
  bool failed;
} NextAttention;

// Matrices of int8 numbers stand in panels of 16 columns: of each four rows, 4 numbers of every column;
// then every column's scale, a float; then the sum of its numbers, an int32.
enum { kPanelColumns = 16, kPanelBytes = 4 * kPanelColumns, kPanelRest = 2 };

// Rows of a product of int8 numbers that a task computes.
enum { kInt8Rows = 96 };

typedef struct {
  int64_t rows, inputs, outputs;
  const float *x, *bias;  // bias: NULL for none
  const int8_t* w;        // [outputs / 16, inputs / 4 + 2, 16, 4 bytes]
  bool gelu;
  int8_t* q;    // [rows, inputs]: x in steps
  float* step;  // [rows]
  float* y;
} Int8;

// Rows, panels and terms of a product with a packed matrix that a task computes together.
enum { kDenseRows = 96, kDensePanels = 6, kDenseTerms = 384 };

// Packed matrices of float32 numbers stand in panels of 16 columns: of each row, the numbers of these
// columns. To pack one, w is [inputs, outputs] and y the panels.
typedef struct {
  int64_t rows, inputs, outputs;
  const float *x, *bias;  // bias: NULL for none
  const float* w;         // [outputs / 16, inputs, 16]
  bool gelu;
  float* y;
} Dense;

static inline int64_t dense_groups(int64_t panels) { return (panels + kDensePanels - 1) / kDensePanels; }

static inline int64_t dense_count(const Dense* a) {
  return (a->rows + kDenseRows - 1) / kDenseRows * dense_groups(a->outputs / kPanelColumns);
}

// The tasks of gorbit_parallel for products of int8 numbers: steps of blocks of rows, then product of
// gorbit_int8_tasks. They belong to the instruction set `of`.
typedef struct {
  const char *of, *name;
  void (*steps)(void*, int64_t);
  void (*product)(void*, int64_t);
} Int8Tasks;

// gorbit_int8 returns the tasks of an instruction set: those of its fastest extension that this processor
// has. gorbit_int8_plain sets whether extensions are left out, for tests.
const Int8Tasks* gorbit_int8(const char* instructions);
void gorbit_int8_plain(bool plain);

// gorbit_int8_count returns the number of tasks of a product.
int64_t gorbit_int8_count(const Int8* a);

// The tasks of gorbit_parallel, for one instruction set.
typedef struct {
  const char* name;
  void (*gelu)(void*, int64_t);
  void (*gelu_gradient)(void*, int64_t);
  void (*gelu_tanh)(void*, int64_t);
  void (*gelu_tanh_gradient)(void*, int64_t);
  void (*norm)(void*, int64_t);
  void (*norm_gradient)(void*, int64_t);
  void (*scale_norm)(void*, int64_t);
  void (*scale_norm_gradient)(void*, int64_t);
  void (*residual)(void*, int64_t);
  void (*token_losses)(void*, int64_t);
  void (*geglu)(void*, int64_t);
  void (*geglu_gradient)(void*, int64_t);
  void (*rotary)(void*, int64_t);
  void (*attention)(void*, int64_t);
  void (*attention_gradient)(void*, int64_t);
  void (*adam)(void*, int64_t);
  void (*sgd)(void*, int64_t);
  void (*lion)(void*, int64_t);
  void (*squares)(void*, int64_t);
  void (*dense)(void*, int64_t);
  void (*dense_pack)(void*, int64_t);
  void (*next_products)(void*, int64_t);
  void (*next_sums)(void*, int64_t);
  void (*rms_norm)(void*, int64_t);
  void (*swiglu)(void*, int64_t);
  void (*next_attention)(void*, int64_t);
  double (*log_sum_exp)(const float*, int64_t);
} Tasks;

// gorbit_use sets the instruction set by name; "" means the widest. It returns false if this
// processor does not support it. It is not thread-safe.
bool gorbit_use(const char* name);

// gorbit_tasks returns the tasks for the instruction set in use.
const Tasks* gorbit_tasks(void);

#endif
