// The operations, as TensorFlow sees them.

#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

// kernels.h defines it in every C file that includes it, internal/exec/kernels' among them.
#define TF_InputRange_Args_STRUCT_SIZE gorbit_input_range_size
#include "tensorflow/c/kernels.h"

// ops.h names these as only C++ may.
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
#include "tensorflow/c/ops.h"

// A call of an operation with its inputs. The first failure is kept.
typedef struct {
  TF_OpKernelContext* context;
  TF_Status* status;
  TF_Tensor* in[2];
} Call;

static Call begin(TF_OpKernelContext* context) {
  Call c = {.context = context, .status = TF_NewStatus()};
  for (int i = 0; i < 2 && TF_GetCode(c.status) == TF_OK; i++) {
    TF_GetInput(context, i, &c.in[i], c.status);
  }
  return c;
}

static bool ok(const Call* c) { return TF_GetCode(c->status) == TF_OK; }

static void end(Call* c) {
  if (!ok(c)) TF_OpKernelContext_Failure(c->context, c->status);
  for (int i = 0; i < 2; i++) {
    if (c->in[i] != NULL) TF_DeleteTensor(c->in[i]);
  }
  TF_DeleteStatus(c->status);
}

static void draw(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  if (ok(&c)) {
    gorbitInputDraw(&c, TF_TensorData(c.in[0]), TF_TensorElementCount(c.in[0]),
                    TF_TensorData(c.in[1]), TF_TensorElementCount(c.in[1]));
  }
  end(&c);
}

static void take(void* unused, TF_OpKernelContext* context) {
  (void)unused;
  Call c = begin(context);
  if (ok(&c)) {
    gorbitInputTake(&c, TF_TensorData(c.in[0]), TF_TensorElementCount(c.in[0]),
                    TF_TensorData(c.in[1]), TF_TensorElementCount(c.in[1]));
  }
  end(&c);
}

// gorbit_input_output makes an output of n numbers and returns where they belong, NULL
// where there are none or after a failure.
void* gorbit_input_output(void* call, int i, int type, int64_t n) {
  Call* c = call;
  if (!ok(c)) return NULL;
  size_t bytes = (size_t)n * TF_DataTypeSize((TF_DataType)type);
  TF_Tensor* t = TF_AllocateOutput(c->context, i, (TF_DataType)type, &n, 1, bytes, c->status);
  if (t == NULL && ok(c)) TF_SetStatus(c->status, TF_RESOURCE_EXHAUSTED, "out of memory");
  if (t == NULL) return NULL;
  // TensorFlow keeps the memory for the output.
  void* data = ok(c) && n > 0 ? TF_TensorData(t) : NULL;
  TF_DeleteTensor(t);
  return data;
}

// gorbit_input_fail sets the error of a call to n bytes of text.
void gorbit_input_fail(void* call, const char* text, int64_t n) {
  Call* c = call;
  char* copy = malloc((size_t)n + 1);
  if (copy == NULL) {
    TF_SetStatus(c->status, TF_RESOURCE_EXHAUSTED, "out of memory");
    return;
  }
  memcpy(copy, text, (size_t)n);
  copy[n] = 0;
  TF_SetStatus(c->status, TF_INVALID_ARGUMENT, copy);
  free(copy);
}

static void unknown(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

static void* nothing_to_make(TF_OpKernelConstruction* unused) {
  (void)unused;
  return NULL;
}

static void nothing_to_delete(void* unused) { (void)unused; }

static const struct {
  const char* name;
  void (*compute)(void*, TF_OpKernelContext*);
  const char *in[2], *out[7];
} kOps[] = {
    {"GorbitDraw", draw, {"config: uint8", "request: int64"}, {"stats: int64", "rows: int32"}},
    {"GorbitTake", take, {"request: int64", "place: int64"},
     {"int32s: int32", "float32s: float", "layout: int64", "int64s: int64", "uint8s: uint8", "bools: bool"}},
};

// gorbit_input_register makes the operations and their CPU kernels known to TensorFlow.
void gorbit_input_register(TF_Status* status) {
  for (size_t i = 0; i < sizeof kOps / sizeof *kOps && TF_GetCode(status) == TF_OK; i++) {
    TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder(kOps[i].name);
    for (int k = 0; k < 2; k++) TF_OpDefinitionBuilderAddInput(op, kOps[i].in[k]);
    for (int k = 0; kOps[i].out[k] != NULL; k++) {
      TF_OpDefinitionBuilderAddOutput(op, kOps[i].out[k]);
    }
    // What they give depends on more than their inputs.
    TF_OpDefinitionBuilderSetIsStateful(op, true);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, unknown);
    TF_RegisterOpDefinition(op, status);
    if (TF_GetCode(status) != TF_OK) return;
    TF_KernelBuilder* kernel = TF_NewKernelBuilder(kOps[i].name, "CPU", nothing_to_make,
                                                   kOps[i].compute, nothing_to_delete);
    TF_RegisterKernelBuilder(kOps[i].name, kernel, status);
  }
}
