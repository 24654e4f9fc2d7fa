// The TensorFlow operations.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/kernels_experimental.h"

// ops.h declares these in a way that is valid only in C++.
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
#include "tensorflow/c/ops.h"

// A call of an operation. It keeps the first error; everything after that has no effect.
typedef struct {
  TF_OpKernelContext* context;
  TF_Status* status;
  TF_Tensor* held[24];
  int count;
} Call;

static bool ok(const Call* c) { return TF_GetCode(c->status) == TF_OK; }

static void fail(Call* c, TF_Code code, const char* text) {
  if (ok(c)) TF_SetStatus(c->status, code, text);
}

static Call begin(TF_OpKernelContext* context) {
  return (Call){.context = context, .status = TF_NewStatus()};
}

static void end(Call* c) {
  if (!ok(c)) TF_OpKernelContext_Failure(c->context, c->status);
  for (int i = 0; i < c->count; i++) TF_DeleteTensor(c->held[i]);
  TF_DeleteStatus(c->status);
}

static TF_Tensor* hold(Call* c, TF_Tensor* t) {
  if (t == NULL) {
    fail(c, TF_RESOURCE_EXHAUSTED, "out of memory");
    return NULL;
  }
  c->held[c->count++] = t;
  return ok(c) ? t : NULL;
}

static TF_Tensor* input(Call* c, int i) {
  TF_Tensor* t = NULL;
  if (!ok(c)) return NULL;
  TF_GetInput(c->context, i, &t, c->status);
  return ok(c) ? hold(c, t) : NULL;
}

static int64_t elements(const TF_Tensor* t) { return t == NULL ? 0 : TF_TensorElementCount(t); }
static float* floats(const TF_Tensor* t) { return t == NULL ? NULL : TF_TensorData(t); }

static int64_t dim(Call* c, const TF_Tensor* t, int rank, int i) {
  if (t == NULL) return 0;
  if (TF_NumDims(t) != rank) {
    fail(c, TF_INVALID_ARGUMENT, "an input has the wrong rank");
    return 0;
  }
  return TF_Dim(t, i);
}

// vector returns the floats of an input that must hold n.
static const float* vector(Call* c, int i, int64_t n) {
  TF_Tensor* t = input(c, i);
  if (ok(c) && elements(t) != n) {
    fail(c, TF_INVALID_ARGUMENT, "an input has the wrong size");
  }
  return floats(t);
}

static float scalar(Call* c, int i) {
  const float* x = vector(c, i, 1);
  return ok(c) ? *x : 0;
}

static void* output_of(Call* c, int i, TF_DataType type, int rank, const int64_t* dims) {
  if (!ok(c)) return NULL;
  size_t bytes = TF_DataTypeSize(type);
  for (int k = 0; k < rank; k++) bytes *= (size_t)dims[k];
  TF_Tensor* t = hold(c, TF_AllocateOutput(c->context, i, type, dims, rank, bytes, c->status));
  return t == NULL ? NULL : TF_TensorData(t);
}

static float* output(Call* c, int i, int rank, const int64_t* dims) {
  return output_of(c, i, TF_FLOAT, rank, dims);
}

// matrix returns the sizes of an input of rank 2. It does not keep a reference to the input.
static void matrix(Call* c, int i, int64_t dims[2]) {
  TF_Tensor* t = NULL;
  dims[0] = dims[1] = 0;
  if (!ok(c)) return;
  TF_GetInput(c->context, i, &t, c->status);
  if (!ok(c)) return;
  dims[0] = dim(c, t, 2, 0), dims[1] = dim(c, t, 2, 1);
  TF_DeleteTensor(t);
}

// instead allocates an output in the memory of an input if nobody else, including this call, uses
// that.
static float* instead(Call* c, int in, int out, int rank, const int64_t* dims) {
  if (!ok(c)) return NULL;
  int used = 0;
  return floats(hold(c, TF_ForwardInputOrAllocateOutput(c->context, &in, 1, out, dims, rank, &used,
                                                        c->status)));
}

// nothing makes an empty output, for values that only TensorFlow's own operations need.
static void nothing(Call* c, int i, TF_DataType type) {
  if (!ok(c)) return;
  int64_t zero = 0;
  hold(c, TF_AllocateOutput(c->context, i, type, &zero, 1, 0, c->status));
}

static Dropout dropout(Call* c, int rate, int key, int counter) {
  Dropout d = {.factor = 1};
  float r = scalar(c, rate);
  TF_Tensor *k = input(c, key), *n = input(c, counter);
  if (!ok(c)) return d;
  if (elements(k) != 1 || elements(n) != 2) {
    fail(c, TF_INVALID_ARGUMENT, "wrong size of the random key or counter; expected 1 and 2 numbers");
    return d;
  }
  // Like tf.round: halves are rounded to even.
  float dropped = nearbyintf(r * 65536.0f);
  dropped = dropped > 0 ? dropped < 65535 ? dropped : 65535 : 0;
  d.key = *(uint64_t*)TF_TensorData(k);
  d.low = ((uint64_t*)TF_TensorData(n))[0];
  d.high = ((uint64_t*)TF_TensorData(n))[1];
  d.threshold = (int32_t)dropped - 32768;
  d.factor = 65536.0f / (65536.0f - dropped);
  d.on = dropped > 0;
  return d;
}

static int64_t blocks(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// Adds partial sums [n, stride], starting at an offset.
static void gather(const float* partial, int64_t n, int64_t stride, int64_t width, float* out) {
  memset(out, 0, (size_t)width * sizeof(float));
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < width; j++) out[j] += partial[i * stride + j];
  }
}

// temporary returns memory for n floats that is valid until the end of the call.
static float* temporary(Call* c, int64_t n) {
  if (!ok(c)) return NULL;
  TF_AllocatorAttributes attributes = {.struct_size = TF_ALLOCATOR_ATTRIBUTES_STRUCT_SIZE};
  return floats(hold(c, TF_AllocateTemp(c->context, TF_FLOAT, &n, 1, &attributes, c->status)));
}

// narrow tells whether an input holds bfloat16 numbers.
static bool narrow(Call* c, int i) {
  TF_Tensor* t = NULL;
  if (!ok(c)) return false;
  TF_GetInput(c->context, i, &t, c->status);
  if (!ok(c)) return false;
  bool yes = TF_TensorType(t) == TF_BFLOAT16;
  TF_DeleteTensor(t);
  return yes;
}

// A task of gorbit_parallel.
typedef void (*Task)(void*, int64_t);

// gelu(x) -> y, and gelu_tanh(x) -> y
static void activate(TF_OpKernelContext* context, Task task) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Gelu g = {.rows = dims[0], .width = dims[1], .narrow = narrow(&c, 0)};
  g.y = instead(&c, 0, 0, 2, dims);
  g.x = vector(&c, 0, dims[0] * dims[1]);
  if (ok(&c)) gorbit_parallel(blocks(dims[0]), task, &g);
  end(&c);
}

static void gelu(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  activate(context, gorbit_tasks()->gelu);
}

static void gelu_tanh(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  activate(context, gorbit_tasks()->gelu_tanh);
}

// gelu_gradient(dy, x) -> dx, dbias, y, and gelu_tanh_gradient(dy, x) -> dx, dbias, y
static void activate_gradient(TF_OpKernelContext* context, Task task) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Gelu g = {.rows = dims[0], .width = dims[1], .narrow = narrow(&c, 1)};
  g.dx = instead(&c, 0, 0, 2, dims);
  float* dbias = output(&c, 1, 1, dims + 1);
  g.y = instead(&c, 1, 2, 2, dims);
  g.dy = vector(&c, 0, dims[0] * dims[1]), g.x = vector(&c, 1, dims[0] * dims[1]);
  g.partial = temporary(&c, blocks(dims[0]) * dims[1]);
  if (ok(&c)) {
    gorbit_parallel(blocks(dims[0]), task, &g);
    gather(g.partial, blocks(dims[0]), dims[1], dims[1], dbias);
  }
  end(&c);
}

static void gelu_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  activate_gradient(context, gorbit_tasks()->gelu_gradient);
}

static void gelu_tanh_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  activate_gradient(context, gorbit_tasks()->gelu_tanh_gradient);
}

// token_losses(logits, labels, weights, smoothing) -> losses, right, dlogits
static void token_losses(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  TokenLosses t = {.rows = dims[0], .width = dims[1]};
  t.dlogits = instead(&c, 0, 2, 2, dims);
  t.logits = vector(&c, 0, dims[0] * dims[1]);
  t.labels = (const int32_t*)vector(&c, 1, dims[0]);
  t.weights = vector(&c, 2, dims[0]);
  t.smoothing = scalar(&c, 3);
  t.losses = output(&c, 0, 1, dims), t.right = output(&c, 1, 1, dims);
  for (int64_t i = 0; ok(&c) && i < dims[0]; i++) {
    if (t.labels[i] < 0 || t.labels[i] >= dims[1]) {
      fail(&c, TF_INVALID_ARGUMENT, "a label is no row of the vocabulary");
    }
  }
  if (ok(&c)) gorbit_parallel(blocks(dims[0]), gorbit_tasks()->token_losses, &t);
  end(&c);
}

// dense_pack(w) -> packed
static void dense_pack(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Dense a = {.inputs = dims[0], .outputs = dims[1], .w = vector(&c, 0, dims[0] * dims[1])};
  if (ok(&c) && dims[1] % kPanelColumns != 0) {
    fail(&c, TF_INVALID_ARGUMENT, "the matrix has another number of columns than a multiple of 16");
  }
  int64_t panels = dims[1] / kPanelColumns;
  a.y = output(&c, 0, 3, (int64_t[]){panels, dims[0], kPanelColumns});
  if (ok(&c)) gorbit_parallel(panels, gorbit_tasks()->dense_pack, &a);
  end(&c);
}

// dense(x, w) -> y, dense_bias(x, w, bias) -> y, and dense_gelu(x, w, bias) -> y
static void dense_float(TF_OpKernelContext* context, bool biased, bool activated) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  const float* x = vector(&c, 0, dims[0] * dims[1]);
  TF_Tensor* w = input(&c, 1);
  int64_t panels = dim(&c, w, 3, 0), inputs = dim(&c, w, 3, 1);
  if (ok(&c) && (inputs != dims[1] || TF_Dim(w, 2) != kPanelColumns)) {
    fail(&c, TF_INVALID_ARGUMENT, "the packed matrix is for another number of columns than x has");
  }
  Dense a = {.rows = dims[0], .inputs = dims[1], .outputs = panels * kPanelColumns, .x = x, .gelu = activated};
  if (biased) a.bias = vector(&c, 2, a.outputs);
  a.y = output(&c, 0, 2, (int64_t[]){a.rows, a.outputs});
  if (ok(&c)) {
    a.w = TF_TensorData(w);
    gorbit_parallel(dense_count(&a), gorbit_tasks()->dense, &a);
  }
  end(&c);
}

static void dense_plain(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  dense_float(context, false, false);
}

static void dense_bias(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  dense_float(context, true, false);
}

static void dense_gelu(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  dense_float(context, true, true);
}

// dense_int8(x, w) -> y, dense_bias_int8(x, w, bias) -> y, and dense_gelu_int8(x, w, bias) -> y
static void dense(TF_OpKernelContext* context, bool biased, bool activated) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  const float* x = vector(&c, 0, dims[0] * dims[1]);
  TF_Tensor* w = input(&c, 1);
  int64_t panels = dim(&c, w, 3, 0), fours = dim(&c, w, 3, 1) - kPanelRest;
  if (ok(&c) && (fours * 4 != dims[1] || fours % 4 != 0 || TF_Dim(w, 2) != kPanelColumns)) {
    fail(&c, TF_INVALID_ARGUMENT, "the packed matrix is for another number of columns than x has");
  }
  Int8 a = {.rows = dims[0], .inputs = dims[1], .outputs = panels * kPanelColumns, .x = x, .gelu = activated};
  if (biased) a.bias = vector(&c, 2, a.outputs);
  a.y = output(&c, 0, 2, (int64_t[]){a.rows, a.outputs});
  a.q = (int8_t*)temporary(&c, (a.rows * a.inputs + 3) / 4);
  a.step = temporary(&c, a.rows);
  if (ok(&c)) {
    a.w = TF_TensorData(w);
    const Int8Tasks* tasks = gorbit_int8(gorbit_tasks()->name);
    gorbit_parallel(blocks(a.rows), tasks->steps, &a);
    gorbit_parallel(gorbit_int8_count(&a), tasks->product, &a);
  }
  end(&c);
}

static void dense_int8(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  dense(context, false, false);
}

static void dense_bias_int8(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  dense(context, true, false);
}

static void dense_gelu_int8(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  dense(context, true, true);
}

// residual_norm(x, residual, scale, offset, epsilon) -> y, and
// residual_norm_dropout(..., rate, key, counter) -> y, normalized, reciprocal, keep
static void norm(TF_OpKernelContext* context, bool train) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Norm n = {.rows = dims[0], .width = dims[1], .narrow = narrow(&c, 0)};
  n.y = instead(&c, n.narrow ? 1 : 0, 0, 2, dims);
  n.x = vector(&c, 0, dims[0] * dims[1]);
  n.residual = vector(&c, 1, dims[0] * dims[1]);
  n.scale = vector(&c, 2, dims[1]);
  n.offset = vector(&c, 3, dims[1]);
  n.epsilon = scalar(&c, 4);
  if (train) {
    n.dropout = dropout(&c, 5, 6, 7);
    n.normalized = output(&c, 1, 2, dims);
    n.reciprocal = output(&c, 2, 2, (int64_t[]){dims[0], 1});
    nothing(&c, 3, TF_BOOL);
  }
  if (ok(&c) && dims[1] > 0) gorbit_parallel(blocks(dims[0]), gorbit_tasks()->norm, &n);
  if (n.failed) fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
  end(&c);
}

static void residual_norm(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  norm(context, false);
}

static void residual_norm_dropout(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  norm(context, true);
}

// residual_norm_dropout_gradient(dy, scale, rate, key, counter, normalized, reciprocal, keep)
// -> dx, dbias, dresidual, dscale, doffset
static void norm_gradient(TF_OpKernelContext* context, bool narrow) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Norm n = {.rows = dims[0], .width = dims[1], .narrow = narrow};
  n.dresidual = instead(&c, 0, 2, 2, dims);
  n.dx = narrow ? output_of(&c, 0, TF_BFLOAT16, 2, dims) : instead(&c, 5, 0, 2, dims);
  n.dy = vector(&c, 0, dims[0] * dims[1]);
  n.scale = vector(&c, 1, dims[1]);
  n.dropout = dropout(&c, 2, 3, 4);
  n.normalized = (float*)vector(&c, 5, dims[0] * dims[1]);
  n.reciprocal = (float*)vector(&c, 6, dims[0]);
  float* dbias = output(&c, 1, 1, dims + 1);
  float* dscale = output(&c, 3, 1, dims + 1);
  float* doffset = output(&c, 4, 1, dims + 1);
  int64_t count = blocks(dims[0]), width = dims[1];
  n.partial = temporary(&c, count * 3 * width);
  if (ok(&c) && width > 0) {
    gorbit_parallel(count, gorbit_tasks()->norm_gradient, &n);
    gather(n.partial, count, 3 * width, width, dbias);
    gather(n.partial + width, count, 3 * width, width, dscale);
    gather(n.partial + 2 * width, count, 3 * width, width, doffset);
  }
  if (n.failed) fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
  end(&c);
}

static void residual_norm_dropout_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  norm_gradient(context, false);
}

// The same with dx of bfloat16, which is in no input.
static void residual_norm_dropout_gradient_bf16(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  norm_gradient(context, true);
}

// scale_norm(x, scale, epsilon) -> y, mean, reciprocal
static void scale_norm(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  int64_t column[] = {dims[0], 1};
  ScaleNorm n = {.rows = dims[0], .width = dims[1]};
  n.y = instead(&c, 0, 0, 2, dims);
  n.x = vector(&c, 0, dims[0] * dims[1]);
  n.scale = vector(&c, 1, dims[1]);
  n.epsilon = scalar(&c, 2);
  n.mean = output(&c, 1, 2, column);
  n.reciprocal = output(&c, 2, 2, column);
  if (ok(&c) && dims[1] > 0) gorbit_parallel(blocks(dims[0]), gorbit_tasks()->scale_norm, &n);
  end(&c);
}

// scale_norm_gradient(dy, x, scale, mean, reciprocal) -> dx, dscale
static void scale_norm_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  ScaleNorm n = {.rows = dims[0], .width = dims[1]};
  n.dx = instead(&c, 0, 0, 2, dims);
  n.dy = vector(&c, 0, dims[0] * dims[1]);
  n.x = vector(&c, 1, dims[0] * dims[1]);
  n.scale = vector(&c, 2, dims[1]);
  n.mean = (float*)vector(&c, 3, dims[0]);
  n.reciprocal = (float*)vector(&c, 4, dims[0]);
  float* dscale = output(&c, 1, 1, dims + 1);
  n.partial = temporary(&c, blocks(dims[0]) * dims[1]);
  if (ok(&c) && dims[1] > 0) {
    gorbit_parallel(blocks(dims[0]), gorbit_tasks()->scale_norm_gradient, &n);
    gather(n.partial, blocks(dims[0]), dims[1], dims[1], dscale);
  }
  end(&c);
}

static void drop(Call* c, Residual* r, const int64_t* dims) {
  if (ok(c) && dims[1] > 0) gorbit_parallel(blocks(dims[0]), gorbit_tasks()->residual, r);
  if (r->failed) fail(c, TF_RESOURCE_EXHAUSTED, "out of memory");
  end(c);
}

// residual_dropout(x, residual, rate, key, counter) -> y, keep
static void residual_dropout(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Residual r = {.rows = dims[0], .width = dims[1]};
  r.y = instead(&c, 0, 0, 2, dims);
  r.x = vector(&c, 0, dims[0] * dims[1]);
  r.residual = vector(&c, 1, dims[0] * dims[1]);
  r.dropout = dropout(&c, 2, 3, 4);
  nothing(&c, 1, TF_BOOL);
  drop(&c, &r, dims);
}

// residual_dropout_gradient(dy, rate, key, counter, keep) -> dx
static void residual_dropout_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Residual r = {.rows = dims[0], .width = dims[1]};
  r.y = instead(&c, 0, 0, 2, dims);
  r.x = vector(&c, 0, dims[0] * dims[1]);
  r.dropout = dropout(&c, 1, 2, 3);
  drop(&c, &r, dims);
}

// geglu(x) -> y, and geglu_dropout(x, rate, key, counter) -> y, keep
static void gate(TF_OpKernelContext* context, bool train) {
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  if (ok(&c) && dims[1] % 2 != 0) fail(&c, TF_INVALID_ARGUMENT, "values and gates differ in width");
  Geglu g = {.rows = dims[0], .width = dims[1] / 2};
  g.y = output(&c, 0, 2, (int64_t[]){g.rows, g.width});
  g.x = vector(&c, 0, dims[0] * dims[1]);
  if (train) {
    g.dropout = dropout(&c, 1, 2, 3);
    nothing(&c, 1, TF_BOOL);
  }
  if (ok(&c)) gorbit_parallel(blocks(g.rows), gorbit_tasks()->geglu, &g);
  if (g.failed) fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
  end(&c);
}

static void geglu(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  gate(context, false);
}

static void geglu_dropout(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  gate(context, true);
}

// geglu_dropout_gradient(dy, x, rate, key, counter, keep) -> dx, y
static void geglu_dropout_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2], twice[2];
  matrix(&c, 0, dims);
  matrix(&c, 1, twice);
  Geglu g = {.rows = dims[0], .width = dims[1]};
  g.dx = instead(&c, 1, 0, 2, twice);
  g.y = instead(&c, 0, 1, 2, dims);
  g.dy = vector(&c, 0, dims[0] * dims[1]);
  g.x = vector(&c, 1, 2 * dims[0] * dims[1]);
  g.dropout = dropout(&c, 2, 3, 4);
  if (ok(&c)) gorbit_parallel(blocks(g.rows), gorbit_tasks()->geglu_gradient, &g);
  if (g.failed) fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
  end(&c);
}

// rotary(x, cosines, sines, heads) -> y
static void rotary(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2], table[2];
  matrix(&c, 0, dims);
  matrix(&c, 1, table);
  Rotary r = {.rows = dims[0], .width = dims[1], .half = table[1]};
  r.y = instead(&c, 0, 0, 2, dims);
  r.x = vector(&c, 0, dims[0] * dims[1]);
  r.cosines = vector(&c, 1, dims[0] * r.half);
  r.sines = vector(&c, 2, dims[0] * r.half);
  TF_Tensor* heads = input(&c, 3);
  if (ok(&c)) r.heads = elements(heads) == 1 ? *(int32_t*)TF_TensorData(heads) : 0;
  if (ok(&c) && (r.heads < 1 || r.heads * 2 * r.half > r.width)) {
    fail(&c, TF_INVALID_ARGUMENT, "the heads of rotary positions do not fit into the columns");
  }
  if (ok(&c)) gorbit_parallel(blocks(r.rows), gorbit_tasks()->rotary, &r);
  end(&c);
}

// Divides rows of sequence ids into runs. Returns NULL and 0 if there is no memory.
static Run* divide(Call* c, const int32_t* ids, int64_t rows, int64_t length, int64_t* count) {
  *count = 0;
  if (!ok(c)) return NULL;
  int64_t room = rows + 8;
  Run* run = malloc((size_t)room * sizeof(Run));
  for (int64_t row = 0; run != NULL && row < rows; row++, ids += length) {
    int64_t first = *count;
    bool whole = true;  // whether every sequence of the row is contiguous
    for (int64_t i = 0, j; i < length; i = j) {
      for (j = i + 1; j < length && ids[j] == ids[i];) j++;
      if (ids[i] == 0) continue;
      for (int64_t k = first; k < *count; k++) whole &= ids[run[k].column] != ids[i];
      if (*count == room) {
        room *= 2;
        Run* more = realloc(run, (size_t)room * sizeof(Run));
        if (more == NULL) free(run);
        run = more;
        if (run == NULL) break;
      }
      run[(*count)++] = (Run){.row = row, .column = i, .length = j - i};
    }
    if (run == NULL || whole) continue;
    int64_t begin = run[first].column, end = run[*count - 1].column + run[*count - 1].length;
    run[first] = (Run){.row = row, .column = begin, .length = end - begin, .ids = ids + begin};
    *count = first + 1;
  }
  if (run == NULL) {
    *count = 0;
    fail(c, TF_RESOURCE_EXHAUSTED, "out of memory");
  }
  return run;
}

static TF_DataType number_type(const Attention* a) { return a->narrow ? TF_BFLOAT16 : TF_FLOAT; }

// How many numbers of the type hold the two floats that are kept of a softmax.
static int64_t saved_numbers(const Attention* a) { return a->narrow ? 4 : 2; }

// Sets the positions that are in no run to zero.
static void clear(const Attention* a, int64_t rows, void* out, int64_t width) {
  int64_t token = 0;
  width *= (int64_t)TF_DataTypeSize(number_type(a));
  for (int64_t i = 0; i <= a->runs; i++) {
    int64_t begin = rows * a->row_length;
    if (i < a->runs) begin = a->run[i].row * a->row_length + a->run[i].column;
    memset((char*)out + token * width, 0, (size_t)((begin - token) * width));
    if (i < a->runs) token = begin + a->run[i].length;
  }
}

// What attention sees: all of a sequence, what is in a window, or what comes before.
typedef enum { kSeesAll, kSeesNear, kSeesBefore } Sight;

// The inputs that forward and backward have in common: qkv, sequence_ids and heads, and the window of
// local attention, starting at input i.
static Attention shape(Call* c, int i, Sight sight, int64_t* rows, int64_t* tokens) {
  TF_Tensor *qkv = input(c, i), *ids = input(c, i + 1), *heads = input(c, i + 2);
  Attention a = {.qkv = floats(qkv), .narrow = qkv != NULL && TF_TensorType(qkv) == TF_BFLOAT16,
                 .causal = sight == kSeesBefore};
  bool local = sight == kSeesNear;
  *rows = dim(c, ids, 2, 0);
  a.row_length = dim(c, ids, 2, 1);
  *tokens = dim(c, qkv, 2, 0);
  int64_t width = dim(c, qkv, 2, 1);
  if (!ok(c)) return a;
  a.heads = elements(heads) == 1 ? *(int32_t*)TF_TensorData(heads) : 0;
  a.width = width / 3;
  if (a.heads < 1 || width != 3 * a.width || a.width % a.heads != 0 ||
      *tokens != *rows * a.row_length) {
    fail(c, TF_INVALID_ARGUMENT, "the shapes of attention's inputs do not match");
    return a;
  }
  TF_Tensor* window = local ? input(c, i + 3) : NULL;
  if (ok(c) && local) {
    a.window = elements(window) == 1 ? *(int32_t*)TF_TensorData(window) : 0;
    if (a.window < 1) fail(c, TF_INVALID_ARGUMENT, "the window of attention is not 1 or more");
  }
  a.run = divide(c, TF_TensorData(ids), *rows, a.row_length, &a.runs);
  return a;
}

// attention(qkv, sequence_ids, heads) -> context, and
// attention_dropout(..., rate, key, counter) -> context, query, key, value, weights, dropped;
// local attention has a window behind heads. qkv and all outputs are float32, or all bfloat16.
static void attend(TF_OpKernelContext* context, bool train, Sight sight) {
  Call c = begin(context);
  int64_t rows, tokens;
  Attention a = shape(&c, 0, sight, &rows, &tokens);
  int local = sight == kSeesNear;
  TF_DataType type = number_type(&a);
  a.y = output_of(&c, 0, type, 2, (int64_t[]){tokens, a.width});
  if (train) {
    a.dropout = dropout(&c, 3 + local, 4 + local, 5 + local);
    // The output that holds the queries with TensorFlow's own operations holds the maximum and
    // the reciprocal sum of the softmax, each in the place of two numbers if these are narrow. The
    // other outputs for the gradient are empty.
    a.save = output_of(&c, 1, type, 3, (int64_t[]){tokens, a.heads, saved_numbers(&a)});
    for (int i = 2; i < 6; i++) nothing(&c, i, type);
  }
  if (ok(&c)) {
    clear(&a, rows, a.y, a.width);
    gorbit_parallel(a.runs * a.heads, gorbit_tasks()->attention, &a);
  }
  if (a.failed) fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
  free((void*)a.run);
  end(&c);
}

static void attention(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend(context, false, kSeesAll);
}

static void attention_dropout(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend(context, true, kSeesAll);
}

static void local_attention(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend(context, false, kSeesNear);
}

static void local_attention_dropout(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend(context, true, kSeesNear);
}

static void causal_attention(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend(context, false, kSeesBefore);
}

static void causal_attention_dropout(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend(context, true, kSeesBefore);
}

// attention_dropout_gradient(dy, qkv, sequence_ids, heads, rate, key, counter, context, query,
// key, value, weights, dropped) -> dqkv, dbias; local attention has a window behind heads, and no
// dbias.
static void attend_gradient(TF_OpKernelContext* context, Sight sight) {
  Call c = begin(context);
  int64_t rows, tokens, dims[2];
  matrix(&c, 1, dims);
  void* dqkv = instead(&c, 1, 0, 2, dims);
  Attention a = shape(&c, 1, sight, &rows, &tokens);
  int local = sight == kSeesNear;
  int64_t width = 3 * a.width;
  a.dy = vector(&c, 0, tokens * a.width);
  a.dropout = dropout(&c, 4 + local, 5 + local, 6 + local);
  a.context = vector(&c, 7 + local, tokens * a.width);
  a.saved = vector(&c, 8 + local, tokens * a.heads * saved_numbers(&a));
  a.dqkv = dqkv;
  float* dbias = local ? NULL : output(&c, 1, 1, &width);
  a.partial = temporary(&c, a.runs * width);
  if (ok(&c)) {
    clear(&a, rows, a.dqkv, width);
    gorbit_parallel(a.runs * a.heads, gorbit_tasks()->attention_gradient, &a);
    if (!local) gather(a.partial, a.runs, width, width, dbias);
  }
  if (a.failed) fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
  free((void*)a.run);
  end(&c);
}

static void attention_dropout_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_gradient(context, kSeesAll);
}

static void local_attention_dropout_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_gradient(context, kSeesNear);
}

static void causal_attention_dropout_gradient(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_gradient(context, kSeesBefore);
}

static void copy(TF_OpKernelContext* unused, TF_Tensor* from, TF_Tensor* to) {
  (void)unused;
  memcpy(TF_TensorData(to), TF_TensorData(from), TF_TensorByteSize(from));
  TF_DeleteTensor(from);
  TF_DeleteTensor(to);
}

typedef void (*Variable)(TF_OpKernelContext*, int, bool, bool, bool,
                         void (*)(TF_OpKernelContext*, TF_Tensor*, TF_Tensor*), TF_Tensor**,
                         TF_Status*);

// find_variable returns TF_GetInputTensorFromVariable, or NULL in releases of TensorFlow that lack it.
static Variable find_variable(void) {
  Variable f;
  TF_Version();  // loads the library
  *(void**)&f = dlsym(RTLD_DEFAULT, "TF_GetInputTensorFromVariable");
  return f;
}

static Variable variable_of;  // set when the operations are registered

static float* state(Call* c, int i, int64_t n) {
  TF_Tensor* t = NULL;
  if (!ok(c)) return NULL;
  variable_of(c->context, i, false, false, false, copy, &t, c->status);
  if (!ok(c) || hold(c, t) == NULL) return NULL;
  if (TF_TensorType(t) != TF_FLOAT || elements(t) != n) {
    fail(c, TF_INVALID_ARGUMENT, "a variable and its gradient have different types or sizes");
  }
  return floats(t);
}

// Chunks of an update from the first one on.
typedef struct {
  void (*task)(void*, int64_t);
  void* argument;
  int64_t first;
} Window;

static void shifted(void* argument, int64_t i) {
  const Window* w = argument;
  w->task(w->argument, w->first + i);
}

// What of an update is in mapped memory: nothing, the slots, or these, the variable and the gradient.
typedef enum { kNone, kSlots, kWhole } Mapped;

// The tensors of an update that are in mapped memory.
typedef struct {
  Mapped mapped;
  float* of[4];
  int count;
} Pages;

// paged returns the memory of input i, which is in mapped memory: an operation writes to it whoever else
// has its value. Any other memory would lose what it holds when its pages are dropped.
static float* paged(Call* c, Pages* p, int i, int64_t n) {
  float* memory = (float*)vector(c, i, n);
  if (ok(c) && n > 0 && !gorbit_is_mapped(memory)) {
    fail(c, TF_INTERNAL, "a tensor that is offloaded is not in the memory of a file");
  }
  return p->of[p->count++] = memory;
}

// variable returns the memory of input i, the variable.
static float* variable(Call* c, Pages* p, int i, int64_t n) {
  return p->mapped == kWhole ? paged(c, p, i, n) : state(c, i, n);
}

// slot returns the memory of input i, a slot: a variable, or the value of one that is mapped.
static float* slot(Call* c, Pages* p, int i, int64_t n) {
  return p->mapped == kNone ? state(c, i, n) : paged(c, p, i, n);
}

// gradient returns the memory of input i, the gradient, and sets the number of its elements.
static const float* gradient(Call* c, Pages* p, int i, int64_t* n) {
  TF_Tensor* t = input(c, i);
  *n = elements(t);
  return p->mapped == kWhole ? paged(c, p, i, *n) : floats(t);
}

// bytes_of returns how many bytes the chunks of a window from the first one on have, of n numbers.
static size_t bytes_of(int64_t first, int64_t n) {
  int64_t from = first * kChunk, most = (int64_t)kWindow * kChunk;
  int64_t left = n - from;
  return (size_t)(left < most ? left > 0 ? left : 0 : most) * sizeof(float);
}

// update runs the task of an update for n numbers. Of mapped memory it has few pages at once.
static void update(const Pages* p, int64_t n, void (*task)(void*, int64_t), void* argument) {
  int64_t chunks = (n + kChunk - 1) / kChunk;
  if (p->count == 0) {
    gorbit_parallel_update(chunks, task, argument);
    return;
  }
  for (int64_t first = 0; first < chunks; first += kWindow) {
    Window w = {task, argument, first};
    int64_t next = first + kWindow;
    for (int k = 0; k < p->count && next < chunks; k++) {
      gorbit_fetch(p->of[k] + next * kChunk, bytes_of(next, n));
    }
    gorbit_parallel_update(next < chunks ? kWindow : chunks - first, shifted, &w);
    for (int k = 0; k < p->count; k++) gorbit_drop(p->of[k] + first * kChunk, bytes_of(first, n));
  }
}

// adamw(variable, m, v, gradient, gradient_scale, iteration, learning_rate, weight_decay, beta_1,
// beta_2, epsilon)
static void adamw_of(TF_OpKernelContext* context, Mapped mapped) {
  Call c = begin(context);
  Pages pages = {.mapped = mapped};
  int64_t n = 0;
  const float* g = gradient(&c, &pages, 3, &n);
  Adam a = {.n = n, .gradient = g, .scale = scalar(&c, 4)};
  TF_Tensor* iteration = input(&c, 5);
  double t = ok(&c) && elements(iteration) == 1 ? (double)*(int64_t*)TF_TensorData(iteration) : 1;
  float rate = scalar(&c, 6), decay = scalar(&c, 7);
  a.beta_1 = scalar(&c, 8);
  a.beta_2 = scalar(&c, 9);
  double epsilon = scalar(&c, 10);
  a.variable = variable(&c, &pages, 0, n);
  a.m = slot(&c, &pages, 1, n);
  a.v = slot(&c, &pages, 2, n);
  if (ok(&c)) {
    double root = sqrt(1 - pow(a.beta_2, t));
    a.rate = (float)(rate * root / (1 - pow(a.beta_1, t)));
    a.epsilon = (float)(epsilon * root);
    a.decay = rate * decay;
    update(&pages, n, gorbit_tasks()->adam, &a);
  }
  end(&c);
}

static void adamw(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  adamw_of(context, kNone);
}

static void adamw_mapped(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  adamw_of(context, kSlots);
}

static void adamw_whole(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  adamw_of(context, kWhole);
}

// sgd(variable, m, gradient, gradient_scale, iteration, learning_rate, weight_decay, momentum,
// nesterov)
static void sgd_of(TF_OpKernelContext* context, Mapped mapped) {
  Call c = begin(context);
  Pages pages = {.mapped = mapped};
  int64_t n = 0;
  const float* g = gradient(&c, &pages, 2, &n);
  Sgd a = {.n = n, .gradient = g, .scale = scalar(&c, 3)};
  a.rate = scalar(&c, 5);
  a.decay = a.rate * scalar(&c, 6);
  a.momentum = scalar(&c, 7);
  a.nesterov = scalar(&c, 8);
  a.variable = variable(&c, &pages, 0, n);
  a.m = slot(&c, &pages, 1, n);
  if (ok(&c)) update(&pages, n, gorbit_tasks()->sgd, &a);
  end(&c);
}

static void sgd(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  sgd_of(context, kNone);
}

static void sgd_mapped(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  sgd_of(context, kSlots);
}

static void sgd_whole(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  sgd_of(context, kWhole);
}

// lion(variable, m, gradient, gradient_scale, iteration, learning_rate, weight_decay, beta_1,
// beta_2)
static void lion_of(TF_OpKernelContext* context, Mapped mapped) {
  Call c = begin(context);
  Pages pages = {.mapped = mapped};
  int64_t n = 0;
  const float* g = gradient(&c, &pages, 2, &n);
  Lion a = {.n = n, .gradient = g, .scale = scalar(&c, 3)};
  a.rate = scalar(&c, 5);
  a.decay = a.rate * scalar(&c, 6);
  a.beta_1 = scalar(&c, 7);
  a.beta_2 = scalar(&c, 8);
  a.variable = variable(&c, &pages, 0, n);
  a.m = slot(&c, &pages, 1, n);
  if (ok(&c)) update(&pages, n, gorbit_tasks()->lion, &a);
  end(&c);
}

static void lion(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  lion_of(context, kNone);
}

static void lion_mapped(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  lion_of(context, kSlots);
}

static void lion_whole(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  lion_of(context, kWhole);
}

// folder_of returns the attribute folder of an operation.
static void* folder_of(TF_OpKernelConstruction* construction) {
  TF_Status* status = TF_NewStatus();
  int32_t list = 0, size = 0;
  char* folder = NULL;
  TF_OpKernelConstruction_GetAttrSize(construction, "folder", &list, &size, status);
  if (TF_GetCode(status) == TF_OK) {
    folder = calloc(1, (size_t)size + 1);
    if (folder == NULL) {
      TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory");
    } else {
      TF_OpKernelConstruction_GetAttrString(construction, "folder", folder, (size_t)size, status);
    }
  }
  if (TF_GetCode(status) != TF_OK) TF_OpKernelConstruction_Failure(construction, status);
  TF_DeleteStatus(status);
  return folder;
}

// mapped(value, shape) -> y, of the shape, in memory that is a file in the folder: the value, or a
// scalar in every element.
static void mapped(void* folder, TF_OpKernelContext* context) {
  Call c = begin(context);
  TF_Tensor *value = input(&c, 0), *shape = input(&c, 1);
  const int64_t* dims = shape == NULL ? NULL : TF_TensorData(shape);
  int rank = (int)elements(shape);
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[i];
  if (ok(&c) && elements(value) != n && elements(value) != 1) {
    fail(&c, TF_INVALID_ARGUMENT, "a value has another number of elements than its shape");
  }
  if (ok(&c) && n == 0) output(&c, 0, rank, dims);
  if (!ok(&c) || n == 0) {
    end(&c);
    return;
  }
  size_t bytes = (size_t)n * sizeof(float);
  float* y = gorbit_map(folder, bytes);
  if (y == NULL) {
    char text[PATH_MAX + 128];
    snprintf(text, sizeof text, "cannot keep %lld bytes of variables in a file in folder %s: %s",
             (long long)bytes, (const char*)folder, strerror(errno));
    fail(&c, TF_FAILED_PRECONDITION, text);
    end(&c);
    return;
  }
  const float* from = floats(value);
  int64_t part = (int64_t)kWindow * kChunk;
  for (int64_t at = 0; at < n && (elements(value) == n || *from != 0); at += part) {
    int64_t count = n - at < part ? n - at : part;
    if (elements(value) == n) {
      memcpy(y + at, from + at, (size_t)count * sizeof(float));
    } else {
      for (int64_t i = at; i < at + count; i++) y[i] = *from;
    }
    gorbit_drop(y + at, (size_t)count * sizeof(float));
  }
  TF_Tensor* t = hold(&c, TF_NewTensor(TF_FLOAT, dims, rank, y, bytes, gorbit_unmap, NULL));
  if (ok(&c)) TF_SetOutput(context, 0, t, c.status);
  end(&c);
}

// What store, add and average do with chunks of a tensor in mapped memory.
typedef struct {
  int64_t n;
  float* memory;
  const float* x;
  float keep, take;
} Kept;

// chunk returns where chunk i begins, and how many numbers it has.
static int64_t chunk(const Kept* k, int64_t i, int64_t* count) {
  int64_t from = i * kChunk;
  *count = k->n - from < kChunk ? k->n - from : kChunk;
  return from;
}

static void store_chunk(void* argument, int64_t i) {
  const Kept* k = argument;
  int64_t count, from = chunk(k, i, &count);
  memcpy(k->memory + from, k->x + from, (size_t)count * sizeof(float));
}

static void sum(float* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static void add_chunk(void* argument, int64_t i) {
  const Kept* k = argument;
  int64_t count, from = chunk(k, i, &count);
  sum(k->memory + from, k->x + from, count);
}

// scale is a function of its own so that no compiler makes one rounding of a product and a sum.
static __attribute__((noinline)) void scale(float* y, const float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}

static void average_chunk(void* argument, int64_t i) {
  enum { kPart = 1024 };
  const Kept* k = argument;
  int64_t count, from = chunk(k, i, &count);
  for (int64_t at = from; at < from + count; at += kPart) {
    float taken[kPart];
    int64_t part = from + count - at < kPart ? from + count - at : kPart;
    scale(taken, k->x + at, k->take, part);
    scale(k->memory + at, k->memory + at, k->keep, part);
    sum(k->memory + at, taken, part);
  }
}

// keep(memory, x) -> memory, which is mapped, after a task that takes x into it.
static void keep(TF_OpKernelContext* context, void (*task)(void*, int64_t)) {
  Call c = begin(context);
  Pages pages = {.mapped = kWhole};
  TF_Tensor* memory = input(&c, 0);
  Kept k = {.n = elements(memory)};
  k.memory = paged(&c, &pages, 0, k.n);
  k.x = vector(&c, 1, k.n);
  if (ok(&c)) update(&pages, k.n, task, &k);
  if (ok(&c)) TF_SetOutput(context, 0, memory, c.status);
  end(&c);
}

static void store(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  keep(context, store_chunk);
}

static void add(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  keep(context, add_chunk);
}

// average(memory, value, keep, take): memory, which is mapped as the value is, becomes keep times itself
// plus take times the value.
static void average(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  Pages pages = {.mapped = kWhole};
  Kept k = {.n = elements(input(&c, 0))};
  k.memory = paged(&c, &pages, 0, k.n);
  k.x = paged(&c, &pages, 1, k.n);
  k.keep = scalar(&c, 2);
  k.take = scalar(&c, 3);
  if (ok(&c)) update(&pages, k.n, average_chunk, &k);
  end(&c);
}

// squares(x, ...) -> the sum of the squares of all elements
static void squares(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  double total = 0;
  for (int i = 0; ok(&c) && i < TF_NumInputs(context); i++) {
    TF_Tensor* x = NULL;
    TF_GetInput(context, i, &x, c.status);
    if (!ok(&c)) break;
    int64_t chunks = (elements(x) + kChunk - 1) / kChunk;
    Squares s = {.x = floats(x), .n = elements(x), .partial = malloc((size_t)(chunks + 1) * 8)};
    if (s.partial == NULL) {
      fail(&c, TF_RESOURCE_EXHAUSTED, "out of memory");
    } else {
      gorbit_parallel_update(chunks, gorbit_tasks()->squares, &s);
      for (int64_t k = 0; k < chunks; k++) total += s.partial[k];
      free(s.partial);
    }
    TF_DeleteTensor(x);
  }
  float* out = output(&c, 0, 0, NULL);
  if (ok(&c)) *out = (float)total;
  end(&c);
}

// The operations of generation are called one at a time, as those of the update, and take as many
// threads.

// products computes products of the same rows. Those that are gated have one size.
static void products(Call* c, Products* p) {
  int64_t tasks = 0, rows = p->of[0].rows;
  for (int i = 0; i < p->count; i++) {
    Product* a = &p->of[i];
    int64_t panel = kPanel * (a->width > 0 ? a->width : 1) * (a->narrow ? 2 : 4);
    int64_t panels = (kGroup + panel - 1) / panel;
    a->group = (panels < kLeastPanels ? kLeastPanels : panels) * kPanel;
    bool small = panel / kPanel * a->inner <= kSmallMatrix;
    if (rows <= (small ? kFewest : kFewRows) && !a->transposed && a->inner > 0) {
      int64_t groups = (a->inner + a->group - 1) / a->group;
      a->partial = temporary(c, groups * rows * a->width);
      tasks += groups;
    } else if (i == 0 || !p->gated) {
      tasks += (rows + kProductRows - 1) / kProductRows * product_strips(a);
    }
    p->ends[i] = tasks;
    if (ok(c) && a->inner == 0 && !a->add) memset(a->y, 0, (size_t)(rows * a->width) * sizeof(float));
  }
  if (!ok(c)) return;
  gorbit_parallel_update(tasks, gorbit_tasks()->next_products, p);
  if (p->failed) fail(c, TF_RESOURCE_EXHAUSTED, "out of memory");
  bool sums = false;
  for (int i = 0; i < p->count; i++) sums = sums || p->of[i].partial != NULL;
  if (!sums) return;
  if (rows > 2) {
    gorbit_parallel_update(rows, gorbit_tasks()->next_sums, p);
  } else {
    for (int64_t i = 0; i < rows; i++) gorbit_tasks()->next_sums(p, i);
  }
}

// next_product(x, w) -> y = x w, next_product_transposed(x, w) -> y = x w^T, and
// next_map_transposed(x, w, bias) -> y = x w^T + bias
static void multiply(TF_OpKernelContext* context, bool transposed, bool biased) {
  Call c = begin(context);
  int64_t dims[2], sizes[2];
  matrix(&c, 0, dims);
  matrix(&c, 1, sizes);
  Product p = {.rows = dims[0], .inner = dims[1], .transposed = transposed};
  p.width = sizes[transposed ? 0 : 1];
  if (ok(&c) && sizes[transposed ? 1 : 0] != p.inner) {
    fail(&c, TF_INVALID_ARGUMENT, "the matrices of a product do not fit together");
  }
  p.x = vector(&c, 0, p.rows * p.inner);
  p.narrow = narrow(&c, 1);
  p.w = vector(&c, 1, p.inner * p.width);
  if (biased) p.bias = vector(&c, 2, p.width);
  p.y = output(&c, 0, 2, (int64_t[]){p.rows, p.width});
  products(&c, &(Products){.count = 1, .of = {p}});
  end(&c);
}

static void next_product(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  multiply(context, false, false);
}

static void next_product_transposed(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  multiply(context, true, false);
}

static void next_map_transposed(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  multiply(context, true, true);
}

// rms_norm(x, scale, epsilon) -> y
static void rms_norm(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  ScaleNorm n = {.rows = dims[0], .width = dims[1]};
  n.y = instead(&c, 0, 0, 2, dims);
  n.x = vector(&c, 0, dims[0] * dims[1]);
  n.scale = vector(&c, 1, dims[1]);
  n.epsilon = scalar(&c, 2);
  if (ok(&c) && dims[1] > 0) gorbit_parallel_update(blocks(dims[0]), gorbit_tasks()->rms_norm, &n);
  end(&c);
}

// weights makes input i a product's matrix, of `inner` rows; of `width` columns unless that is 0.
static void weights(Call* c, int i, Product* p, int64_t inner, int64_t width) {
  int64_t dims[2];
  matrix(c, i, dims);
  if (ok(c) && (dims[0] != inner || inner == 0 || (width > 0 && dims[1] != width))) {
    fail(c, TF_INVALID_ARGUMENT, "the matrices of a product do not fit together");
  }
  p->narrow = narrow(c, i);
  p->inner = inner;
  p->width = dims[1];
  p->w = vector(c, i, inner * dims[1]);
}

// normed returns the rows of a norm without an offset.
static float* normed(Call* c, const float* x, const float* scale, float epsilon, int64_t rows,
                     int64_t width) {
  ScaleNorm n = {.rows = rows, .width = width, .x = x, .scale = scale, .epsilon = epsilon};
  n.y = temporary(c, rows * width);
  if (ok(c)) gorbit_parallel_update(blocks(rows), gorbit_tasks()->rms_norm, &n);
  return n.y;
}

// next_normed_products(x, scale, epsilon, w0, w1, w2) -> y0, y1, y2
static void next_normed_products(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  const float *x = vector(&c, 0, dims[0] * dims[1]), *scale = vector(&c, 1, dims[1]);
  float* n = normed(&c, x, scale, scalar(&c, 2), dims[0], dims[1]);
  Products p = {.count = 3};
  for (int i = 0; i < p.count; i++) {
    p.of[i] = (Product){.rows = dims[0], .x = n};
    weights(&c, 3 + i, &p.of[i], dims[1], 0);
    p.of[i].y = output(&c, i, 2, (int64_t[]){dims[0], p.of[i].width});
  }
  products(&c, &p);
  end(&c);
}

// next_map(x, w, bias, activation) -> y = activation(x w + bias)
static void next_map(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Product p = {.rows = dims[0], .x = vector(&c, 0, dims[0] * dims[1])};
  weights(&c, 1, &p, dims[1], 0);
  p.bias = vector(&c, 2, p.width);
  TF_Tensor* activation = input(&c, 3);
  if (ok(&c)) {
    int32_t number = elements(activation) == 1 ? *(int32_t*)TF_TensorData(activation) : -1;
    if (number < 0 || number >= kActivations) fail(&c, TF_INVALID_ARGUMENT, "there is no such activation");
    p.activation = (Activation)number;
  }
  p.y = output(&c, 0, 2, (int64_t[]){p.rows, p.width});
  products(&c, &(Products){.count = 1, .of = {p}});
  end(&c);
}

// next_maps(x, w0, bias0, w1, bias1, w2, bias2) -> y0, y1, y2
static void next_maps(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  const float* x = vector(&c, 0, dims[0] * dims[1]);
  Products p = {.count = 3};
  for (int i = 0; i < p.count; i++) {
    p.of[i] = (Product){.rows = dims[0], .x = x};
    weights(&c, 1 + 2 * i, &p.of[i], dims[1], 0);
    p.of[i].bias = vector(&c, 2 + 2 * i, p.of[i].width);
    p.of[i].y = output(&c, i, 2, (int64_t[]){dims[0], p.of[i].width});
  }
  products(&c, &p);
  end(&c);
}

// next_map_add(x, context, w, bias) -> y = x + context w + bias
static void next_map_add(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2], sizes[2];
  matrix(&c, 0, dims);
  matrix(&c, 1, sizes);
  const float* x = vector(&c, 0, dims[0] * dims[1]);
  Product p = {.rows = dims[0], .x = vector(&c, 1, dims[0] * sizes[1]), .add = true};
  weights(&c, 2, &p, sizes[1], dims[1]);
  p.bias = vector(&c, 3, p.width);
  p.y = output(&c, 0, 2, dims);
  if (ok(&c)) memcpy(p.y, x, (size_t)(dims[0] * dims[1]) * sizeof(float));
  products(&c, &(Products){.count = 1, .of = {p}});
  end(&c);
}

// next_norm(x, scale, offset, epsilon) -> y
static void next_norm(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  ScaleNorm n = {.rows = dims[0], .width = dims[1]};
  n.y = output(&c, 0, 2, dims);
  n.x = vector(&c, 0, dims[0] * dims[1]);
  n.scale = vector(&c, 1, dims[1]);
  n.offset = vector(&c, 2, dims[1]);
  n.epsilon = scalar(&c, 3);
  if (ok(&c) && dims[1] > 0) gorbit_parallel_update(blocks(dims[0]), gorbit_tasks()->scale_norm, &n);
  end(&c);
}

// next_feed_forward(x, context, output, scale, epsilon, gate, up, down) -> y
static void next_feed_forward(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2], sizes[2];
  matrix(&c, 0, dims);
  matrix(&c, 1, sizes);
  int64_t rows = dims[0], width = dims[1];
  const float *x = vector(&c, 0, rows * width), *scale = vector(&c, 3, width);
  float epsilon = scalar(&c, 4), *y = output(&c, 0, 2, dims);
  Products p = {.count = 1, .of = {{.rows = rows, .x = vector(&c, 1, rows * sizes[1]), .y = y, .add = true}}};
  weights(&c, 2, p.of, sizes[1], width);
  if (ok(&c)) memcpy(y, x, (size_t)(rows * width) * sizeof(float));
  products(&c, &p);
  float* n = normed(&c, y, scale, epsilon, rows, width);
  p = (Products){.count = 2, .gated = true};
  for (int i = 0; i < p.count; i++) {
    p.of[i] = (Product){.rows = rows, .x = n};
    weights(&c, 5 + i, &p.of[i], width, i == 0 ? 0 : p.of[0].width);
    p.of[i].y = temporary(&c, rows * p.of[i].width);
  }
  products(&c, &p);
  Product last = {.rows = rows, .x = p.of[0].y, .y = y, .add = true};
  weights(&c, 7, &last, p.of[0].width, width);
  products(&c, &(Products){.count = 1, .of = {last}});
  end(&c);
}

// swiglu(gate, x) -> y
static void swiglu(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2];
  matrix(&c, 0, dims);
  Swiglu s = {.n = dims[0] * dims[1]};
  s.y = instead(&c, 0, 0, 2, dims);
  s.gate = vector(&c, 0, s.n);
  s.x = vector(&c, 1, s.n);
  if (ok(&c)) gorbit_parallel_update((s.n + kSmallChunk - 1) / kSmallChunk, gorbit_tasks()->swiglu, &s);
  end(&c);
}

// attended_heads sets the numbers of heads, inputs i and i + 1, and the scale after them. It returns the width
// of keys and values.
static int64_t attended_heads(Call* c, int i, NextAttention* a) {
  TF_Tensor *heads = input(c, i), *shared = input(c, i + 1);
  a->scale = scalar(c, i + 2);
  if (!ok(c)) return 0;
  if (elements(heads) != 1 || elements(shared) != 1) {
    fail(c, TF_INVALID_ARGUMENT, "the number of heads is no scalar");
    return 0;
  }
  a->heads = *(int32_t*)TF_TensorData(heads);
  a->shared = *(int32_t*)TF_TensorData(shared);
  if (a->heads < 1 || a->shared < 1 || a->heads % a->shared != 0 || a->width % a->heads != 0) {
    fail(c, TF_INVALID_ARGUMENT, "the heads do not divide the width");
    return 0;
  }
  return a->width / a->heads * a->shared;
}

// attend_rows computes attention of rows whose tokens are known.
static void attend_rows(Call* c, NextAttention* a, int64_t rows) {
  a->y = output(c, 0, 2, (int64_t[]){rows * a->tokens, a->width});
  a->parts = (a->tokens + kNextQueries - 1) / kNextQueries;
  if (!ok(c)) return;
  gorbit_parallel_update(rows * a->shared * a->parts, gorbit_tasks()->next_attention, a);
  if (a->failed) fail(c, TF_RESOURCE_EXHAUSTED, "out of memory");
}

// next_attention(query, key, value, allowed, heads, shared, scale) -> y, and
// next_attention_biased(..., bias) -> y
static void attend_next(TF_OpKernelContext* context, bool biased) {
  Call c = begin(context);
  TF_Tensor *query = input(&c, 0), *key = input(&c, 1), *allowed = input(&c, 3);
  int64_t rows = dim(&c, query, 3, 0);
  NextAttention a = {.tokens = dim(&c, query, 3, 1), .columns = dim(&c, key, 3, 1), .width = dim(&c, query, 3, 2)};
  int64_t entries = rows * a.columns * attended_heads(&c, 4, &a);
  if (ok(&c)) {
    if (elements(key) != entries || elements(allowed) != rows * a.tokens * a.columns) {
      fail(&c, TF_INVALID_ARGUMENT, "keys, or what is allowed, have another size than the queries");
    }
    a.value = vector(&c, 2, entries);
  }
  a.query = floats(query);
  a.key = floats(key);
  a.allowed = allowed == NULL ? NULL : TF_TensorData(allowed);
  if (biased) a.bias = vector(&c, 7, rows * a.heads * a.tokens * a.columns);
  attend_rows(&c, &a, rows);
  end(&c);
}

static void next_attention(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_next(context, false);
}

static void next_attention_biased(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_next(context, true);
}

// cache returns the memory of a cache, a variable [slots, width], that is written in place.
static float* cache(Call* c, int i, int64_t width, int64_t* slots) {
  TF_Tensor* t = NULL;
  if (!ok(c)) return NULL;
  // What writes to some rows alone is a sparse access: such a variable's reads make copies.
  variable_of(c->context, i, false, false, true, copy, &t, c->status);
  if (!ok(c) || hold(c, t) == NULL) return NULL;
  if (TF_TensorType(t) != TF_FLOAT || TF_NumDims(t) != 2 || TF_Dim(t, 1) != width) {
    fail(c, TF_INVALID_ARGUMENT, "a cache has another type or width than what it keeps");
    return NULL;
  }
  *slots = TF_Dim(t, 0);
  return floats(t);
}

// caches returns the number of slots of two caches, inputs i and i + 1, and sets keys and values to them.
static int64_t caches(Call* c, int i, int64_t width, float** keys, float** values) {
  int64_t count = 0, other = 0;
  *keys = cache(c, i, width, &count), *values = cache(c, i + 1, width, &other);
  if (ok(c) && count != other) fail(c, TF_INVALID_ARGUMENT, "the caches have different numbers of slots");
  return count;
}

// slots_of returns an input of slots, [rows, columns], each below a number.
static const int32_t* slots_of(Call* c, int i, int64_t rows, int64_t columns, int64_t number) {
  TF_Tensor* t = input(c, i);
  if (!ok(c)) return NULL;
  if (elements(t) != rows * columns) fail(c, TF_INVALID_ARGUMENT, "slots have another size than the tokens");
  const int32_t* slots = TF_TensorData(t);
  for (int64_t k = 0; ok(c) && k < rows * columns; k++) {
    if (slots[k] < 0 || slots[k] >= number) fail(c, TF_INVALID_ARGUMENT, "a slot is outside of the cache");
  }
  return slots;
}

// next_cached_attention(query, key, value, slots, context, positions, heads, shared, scale, window, keys,
// values) -> y, and next_cached_attention_biased(..., bias) -> y
static void attend_cached(TF_OpKernelContext* context, bool biased) {
  Call c = begin(context);
  int64_t dims[2], places[2], columns[2];
  matrix(&c, 0, dims);
  matrix(&c, 3, places);
  matrix(&c, 4, columns);
  int64_t rows = places[0];
  NextAttention a = {.tokens = places[1], .columns = columns[1], .width = dims[1]};
  int64_t width = attended_heads(&c, 6, &a);
  if (ok(&c) && (dims[0] != rows * a.tokens || columns[0] != rows)) {
    fail(&c, TF_INVALID_ARGUMENT, "slots have another size than the queries");
  }
  a.query = vector(&c, 0, dims[0] * a.width);
  const float *key = vector(&c, 1, dims[0] * width), *value = vector(&c, 2, dims[0] * width);
  float *keys, *values;
  int64_t count = caches(&c, 10, width, &keys, &values);
  const int32_t* slots = slots_of(&c, 3, rows, a.tokens, count);
  a.slots = slots_of(&c, 4, rows, a.columns, count);
  TF_Tensor *positions = input(&c, 5), *window = input(&c, 9);
  if (ok(&c) && (elements(positions) != dims[0] || elements(window) != 1)) {
    fail(&c, TF_INVALID_ARGUMENT, "positions have another size than the queries");
  }
  if (biased) a.bias = vector(&c, 12, rows * a.heads * a.tokens * a.columns);
  if (ok(&c)) {
    a.key = keys, a.value = values, a.positions = TF_TensorData(positions);
    a.window = *(int32_t*)TF_TensorData(window);
    for (int64_t i = 0; i < dims[0]; i++) {
      if (slots[i] == 0) continue;  // that of padding stays 0
      memcpy(keys + slots[i] * width, key + i * width, (size_t)width * sizeof(float));
      memcpy(values + slots[i] * width, value + i * width, (size_t)width * sizeof(float));
    }
  }
  attend_rows(&c, &a, rows);
  end(&c);
}

static void next_cached_attention(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_cached(context, false);
}

static void next_cached_attention_biased(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  attend_cached(context, true);
}

// next_source_attention(query, source, heads, shared, scale, keys, values) -> y
static void next_source_attention(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  int64_t dims[2], sources[2];
  matrix(&c, 0, dims);
  matrix(&c, 1, sources);
  int64_t rows = sources[0];
  if (ok(&c) && (rows == 0 ? dims[0] != 0 : dims[0] % rows != 0)) {
    fail(&c, TF_INVALID_ARGUMENT, "the queries are not as many for each source");
  }
  NextAttention a = {.columns = sources[1], .width = dims[1]};
  int64_t width = attended_heads(&c, 2, &a);
  if (ok(&c) && rows > 0) a.tokens = dims[0] / rows;
  a.query = vector(&c, 0, dims[0] * a.width);
  float *keys, *values;
  int64_t count = caches(&c, 5, width, &keys, &values);
  a.key = keys, a.value = values;
  a.slots = slots_of(&c, 1, rows, a.columns, count);
  attend_rows(&c, &a, rows);
  end(&c);
}

static void unknown(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// same sets the shape of the first output to that of the first input.
static void same(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
  TF_ShapeHandle* handle = TF_NewShapeHandle();
  if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextGetInput(context, 0, handle, status);
  if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, 0, handle, status);
  TF_DeleteShapeHandle(handle);
}

static void none(TF_ShapeInferenceContext* context, TF_Status* status) {
  (void)context;
  (void)status;
}

#define DRAWN "rate: float", "key: uint64", "counter: uint64"

static const struct {
  const char* name;
  void (*compute)(void*, TF_OpKernelContext*);
  void (*infer)(TF_ShapeInferenceContext*, TF_Status*);
  bool stateful;  // takes variables, or makes memory for them
  const char *in[15], *out[7];
} kOps[] = {
// The operations of attention whose numbers have a type.
#define ATTENTION(suffix, type)                                                                    \
  {"GorbitAttention" suffix, attention, unknown, false,                                            \
   {"qkv: " type, "sequence_ids: int32", "heads: int32"}, {"context: " type}},                     \
  {"GorbitAttentionDropout" suffix, attention_dropout, unknown, false,                             \
   {"qkv: " type, "sequence_ids: int32", "heads: int32", DRAWN}, {"context: " type, SAVED(type)}}, \
  {"GorbitAttentionDropoutGradient" suffix, attention_dropout_gradient, unknown, false,            \
   {"dy: " type, "qkv: " type, "sequence_ids: int32", "heads: int32", DRAWN, "context: " type,     \
    SAVED(type)},                                                                                  \
   {"dqkv: " type, "dbias: float"}},                                                               \
  {"GorbitCausalAttention" suffix, causal_attention, unknown, false,                               \
   {"qkv: " type, "sequence_ids: int32", "heads: int32"}, {"context: " type}},                     \
  {"GorbitCausalAttentionDropout" suffix, causal_attention_dropout, unknown, false,                \
   {"qkv: " type, "sequence_ids: int32", "heads: int32", DRAWN}, {"context: " type, SAVED(type)}}, \
  {"GorbitCausalAttentionDropoutGradient" suffix, causal_attention_dropout_gradient, unknown,      \
   false,                                                                                          \
   {"dy: " type, "qkv: " type, "sequence_ids: int32", "heads: int32", DRAWN, "context: " type,     \
    SAVED(type)},                                                                                  \
   {"dqkv: " type, "dbias: float"}},                                                               \
  {"GorbitLocalAttention" suffix, local_attention, unknown, false,                                 \
   {"qkv: " type, "sequence_ids: int32", "heads: int32", "window: int32"}, {"context: " type}},    \
  {"GorbitLocalAttentionDropout" suffix, local_attention_dropout, unknown, false,                  \
   {"qkv: " type, "sequence_ids: int32", "heads: int32", "window: int32", DRAWN},                  \
   {"context: " type, SAVED(type)}},                                                               \
  {"GorbitLocalAttentionDropoutGradient" suffix, local_attention_dropout_gradient, unknown, false, \
   {"dy: " type, "qkv: " type, "sequence_ids: int32", "heads: int32", "window: int32", DRAWN,      \
    "context: " type, SAVED(type)},                                                                \
   {"dqkv: " type}}
#define SAVED(type) \
  "q: " type, "k: " type, "v: " type, "weights: " type, "dropped: " type
// The operations that take and give a product's numbers.
#define PRODUCT(suffix, type, gradient)                                                            \
  {"GorbitGelu" suffix, gelu, same, false, {"x: " type}, {"y: " type}},                            \
  {"GorbitGeluGradient" suffix, gelu_gradient, same, false, {"dy: " type, "x: " type},             \
   {"dx: " type, "dbias: float", "y: " type}},                                                     \
  {"GorbitGeluTanh" suffix, gelu_tanh, same, false, {"x: " type}, {"y: " type}},                   \
  {"GorbitGeluTanhGradient" suffix, gelu_tanh_gradient, same, false, {"dy: " type, "x: " type},    \
   {"dx: " type, "dbias: float", "y: " type}},                                                     \
  {"GorbitResidualNorm" suffix, residual_norm, same, false,                                        \
   {"x: " type, "residual: float", "scale: float", "offset: float", "epsilon: float"},             \
   {"y: float"}},                                                                                  \
  {"GorbitResidualNormDropout" suffix, residual_norm_dropout, same, false,                         \
   {"x: " type, "residual: float", "scale: float", "offset: float", "epsilon: float", DRAWN},      \
   {"y: float", "normalized: float", "reciprocal: float", "keep: bool"}},                          \
  {"GorbitResidualNormDropoutGradient" suffix, gradient, same, false,                              \
   {"dy: float", "scale: float", DRAWN, "normalized: float", "reciprocal: float", "keep: bool"},   \
   {"dx: " type, "dbias: float", "dresidual: float", "dscale: float", "doffset: float"}}
    {"GorbitDensePack", dense_pack, unknown, false, {"w: float"}, {"packed: float"}},
    {"GorbitDense", dense_plain, unknown, false, {"x: float", "w: float"}, {"y: float"}},
    {"GorbitDenseBias", dense_bias, unknown, false, {"x: float", "w: float", "bias: float"}, {"y: float"}},
    {"GorbitDenseGelu", dense_gelu, unknown, false, {"x: float", "w: float", "bias: float"}, {"y: float"}},
    {"GorbitDenseInt8", dense_int8, unknown, false, {"x: float", "w: int32"}, {"y: float"}},
    {"GorbitDenseBiasInt8", dense_bias_int8, unknown, false,
     {"x: float", "w: int32", "bias: float"}, {"y: float"}},
    {"GorbitDenseGeluInt8", dense_gelu_int8, unknown, false,
     {"x: float", "w: int32", "bias: float"}, {"y: float"}},
    PRODUCT("", "float", residual_norm_dropout_gradient),
    PRODUCT("Bf16", "bfloat16", residual_norm_dropout_gradient_bf16),
    ATTENTION("", "float"),
    ATTENTION("Bf16", "bfloat16"),
    {"GorbitRotary", rotary, same, false,
     {"x: float", "cosines: float", "sines: float", "heads: int32"}, {"y: float"}},
    {"GorbitScaleNorm", scale_norm, same, false,
     {"x: float", "scale: float", "epsilon: float"},
     {"y: float", "mean: float", "reciprocal: float"}},
    {"GorbitScaleNormGradient", scale_norm_gradient, same, false,
     {"dy: float", "x: float", "scale: float", "mean: float", "reciprocal: float"},
     {"dx: float", "dscale: float"}},
    {"GorbitTokenLosses", token_losses, unknown, false,
     {"logits: float", "labels: int32", "weights: float", "smoothing: float"},
     {"losses: float", "right: float", "dlogits: float"}},
    {"GorbitResidualDropout", residual_dropout, same, false,
     {"x: float", "residual: float", DRAWN}, {"y: float", "keep: bool"}},
    {"GorbitResidualDropoutGradient", residual_dropout_gradient, same, false,
     {"dy: float", DRAWN, "keep: bool"}, {"dx: float"}},
    {"GorbitGeglu", geglu, unknown, false, {"x: float"}, {"y: float"}},
    {"GorbitGegluDropout", geglu_dropout, unknown, false, {"x: float", DRAWN},
     {"y: float", "keep: bool"}},
    {"GorbitGegluDropoutGradient", geglu_dropout_gradient, unknown, false,
     {"dy: float", "x: float", DRAWN, "keep: bool"}, {"dx: float", "y: float"}},
// The operations of updates, and those of the same updates of mapped slots, or of all in mapped memory.
#define GRADIENT \
  "gradient: float", "gradient_scale: float", "iteration: int64", "learning_rate: float", \
      "weight_decay: float"
#define ADAMW(suffix, function, variable, slot)                                            \
  {"GorbitAdamw" suffix, function, none, true,                                             \
   {"variable: " variable, "m: " slot, "v: " slot, GRADIENT, "beta_1: float",              \
    "beta_2: float", "epsilon: float"},                                                    \
   {NULL}}
#define SGD(suffix, function, variable, slot)                                              \
  {"GorbitSgd" suffix, function, none, true,                                               \
   {"variable: " variable, "m: " slot, GRADIENT, "momentum: float", "nesterov: float"},    \
   {NULL}}
#define LION(suffix, function, variable, slot)                                             \
  {"GorbitLion" suffix, function, none, true,                                              \
   {"variable: " variable, "m: " slot, GRADIENT, "beta_1: float", "beta_2: float"},        \
   {NULL}}
    ADAMW("", adamw, "resource", "resource"),
    ADAMW("Mapped", adamw_mapped, "resource", "float"),
    ADAMW("WholeMapped", adamw_whole, "float", "float"),
    SGD("", sgd, "resource", "resource"),
    SGD("Mapped", sgd_mapped, "resource", "float"),
    SGD("WholeMapped", sgd_whole, "float", "float"),
    LION("", lion, "resource", "resource"),
    LION("Mapped", lion_mapped, "resource", "float"),
    LION("WholeMapped", lion_whole, "float", "float"),
    {"GorbitStoreMapped", store, same, true, {"memory: float", "x: float"}, {"y: float"}},
    {"GorbitAddMapped", add, same, true, {"memory: float", "x: float"}, {"y: float"}},
    {"GorbitAverageMapped", average, none, true,
     {"memory: float", "value: float", "keep: float", "take: float"}, {NULL}},
// The operations of generation whose matrices have a type.
#define NEXT(suffix, type)                                                                         \
  {"GorbitNextProduct" suffix, next_product, unknown, false, {"x: float", "w: " type},             \
   {"y: float"}},                                                                                  \
  {"GorbitNextProductTransposed" suffix, next_product_transposed, unknown, false,                  \
   {"x: float", "w: " type}, {"y: float"}},                                                        \
  {"GorbitNextMap" suffix, next_map, unknown, false,                                               \
   {"x: float", "w: " type, "bias: float", "activation: int32"}, {"y: float"}},                    \
  {"GorbitNextMaps" suffix, next_maps, unknown, false,                                             \
   {"x: float", "w0: " type, "bias0: float", "w1: " type, "bias1: float", "w2: " type,             \
    "bias2: float"},                                                                               \
   {"y0: float", "y1: float", "y2: float"}},                                                       \
  {"GorbitNextMapAdd" suffix, next_map_add, same, false,                                           \
   {"x: float", "context: float", "w: " type, "bias: float"}, {"y: float"}},                       \
  {"GorbitNextMapTransposed" suffix, next_map_transposed, unknown, false,                          \
   {"x: float", "w: " type, "bias: float"}, {"y: float"}},                                         \
  {"GorbitNextNormedProducts" suffix, next_normed_products, unknown, false,                        \
   {"x: float", "scale: float", "epsilon: float", "w0: " type, "w1: " type, "w2: " type},          \
   {"y0: float", "y1: float", "y2: float"}},                                                       \
  {"GorbitNextFeedForward" suffix, next_feed_forward, same, false,                                 \
   {"x: float", "context: float", "output: " type, "scale: float", "epsilon: float",               \
    "gate: " type, "up: " type, "down: " type},                                                    \
   {"y: float"}}
    NEXT("", "float"),
    NEXT("Bf16", "bfloat16"),
    {"GorbitRmsNorm", rms_norm, same, false, {"x: float", "scale: float", "epsilon: float"},
     {"y: float"}},
    {"GorbitSwiglu", swiglu, same, false, {"gate: float", "x: float"}, {"y: float"}},
// The operations of attention over caches.
#define CACHED                                                                               \
  "query: float", "key: float", "value: float", "allowed: bool", "heads: int32", "shared: int32", \
      "scale: float"
    {"GorbitNextAttention", next_attention, unknown, false, {CACHED}, {"y: float"}},
    {"GorbitNextAttentionBiased", next_attention_biased, unknown, false, {CACHED, "bias: float"},
     {"y: float"}},
    {"GorbitNextNorm", next_norm, same, false,
     {"x: float", "scale: float", "offset: float", "epsilon: float"}, {"y: float"}},
#define IN_PLACE                                                                              \
  "query: float", "key: float", "value: float", "slots: int32", "context: int32",             \
      "positions: int32", "heads: int32", "shared: int32", "scale: float", "window: int32",   \
      "keys: resource", "values: resource"
    {"GorbitNextCachedAttention", next_cached_attention, unknown, true, {IN_PLACE}, {"y: float"}},
    {"GorbitNextCachedAttentionBiased", next_cached_attention_biased, unknown, true,
     {IN_PLACE, "bias: float"}, {"y: float"}},
    {"GorbitNextSourceAttention", next_source_attention, unknown, true,
     {"query: float", "source: int32", "heads: int32", "shared: int32", "scale: float",
      "keys: resource", "values: resource"}, {"y: float"}},
    {"GorbitMapped", mapped, unknown, true, {"value: float", "shape: int64"}, {"y: float"}},
    {"GorbitSquares", squares, unknown, false, {"x: N * float"}, {"sum: float"}},
};

static void* nothing_to_make(TF_OpKernelConstruction* unused) {
  (void)unused;
  return NULL;
}

static void nothing_to_delete(void* unused) { (void)unused; }

static void delete_folder(void* folder) { free(folder); }

// gorbit_available tells whether this release of TensorFlow can run an operation: not every one has
// the function that gives a kernel its variables.
bool gorbit_available(int op) { return !kOps[op].stateful || find_variable() != NULL; }

// gorbit_register registers the operations and their CPU kernels with TensorFlow.
void gorbit_register(TF_Status* status) {
  variable_of = find_variable();
  for (size_t i = 0; i < sizeof kOps / sizeof *kOps; i++) {
    if (!gorbit_available(i)) continue;
    TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder(kOps[i].name);
    bool maps = kOps[i].compute == mapped;
    if (maps) TF_OpDefinitionBuilderAddAttr(op, "folder: string");
    for (int k = 0; kOps[i].in[k] != NULL; k++) {
      if (strstr(kOps[i].in[k], "N * ")) TF_OpDefinitionBuilderAddAttr(op, "N: int >= 1");
      TF_OpDefinitionBuilderAddInput(op, kOps[i].in[k]);
    }
    for (int k = 0; kOps[i].out[k] != NULL; k++) {
      TF_OpDefinitionBuilderAddOutput(op, kOps[i].out[k]);
    }
    // TF_OpDefinitionBuilderSetIsStateful ignores its argument and always sets the attribute, which
    // prevents inlining.
    if (kOps[i].stateful) TF_OpDefinitionBuilderSetIsStateful(op, true);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, kOps[i].infer);
    TF_RegisterOpDefinition(op, status);
    if (TF_GetCode(status) != TF_OK) return;
    TF_KernelBuilder* kernel = TF_NewKernelBuilder(
        kOps[i].name, "CPU", maps ? folder_of : nothing_to_make, kOps[i].compute,
        maps ? delete_folder : nothing_to_delete);
    TF_RegisterKernelBuilder(kOps[i].name, kernel, status);
    if (TF_GetCode(status) != TF_OK) return;
  }
}

// gorbit_instructions returns the instruction set of the kernels.
const char* gorbit_instructions(void) { return gorbit_tasks()->name; }

// gorbit_log_sum_exp returns the logarithm of the sum of the exponentials of n numbers.
double gorbit_log_sum_exp(const float* x, long long n) { return gorbit_tasks()->log_sum_exp(x, n); }

// gorbit_op returns the name of an operation (kind 0), or its i-th input (1) or output (2) as
// "name: type". It returns NULL after the last one.
const char* gorbit_op(int op, int kind, int i) {
  if ((size_t)op >= sizeof kOps / sizeof *kOps) return NULL;
  return kind == 0 ? kOps[op].name : kind == 1 ? kOps[op].in[i] : kOps[op].out[i];
}
