#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>

// CUDA's functions return 0 on success.
typedef int (*of_int)(int*);

// Attributes of cuDeviceGetAttribute.
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };

static void* find(const char* name) { return dlsym(RTLD_DEFAULT, name); }

static int ask(const char* name) {
  of_int f = (of_int)find(name);
  int answer = 0;
  return f && f(&answer) == 0 ? answer : 0;
}

static bool initialized(void) {
  int (*init)(unsigned) = (int (*)(unsigned))find("cuInit");
  return init && init(0) == 0;
}

bool gorbit_cuda_built(void) { return find("cuInit") != NULL; }

int gorbit_cuda_runtime(void) { return ask("cudaRuntimeGetVersion"); }

int gorbit_cuda_driver(void) { return initialized() ? ask("cuDriverGetVersion") : 0; }

int gorbit_cuda_count(void) { return initialized() ? ask("cuDeviceGetCount") : 0; }

bool gorbit_cuda_device(int i, gorbit_gpu* gpu) {
  int (*get)(int*, int) = (int (*)(int*, int))find("cuDeviceGet");
  int (*name)(char*, int, int) = (int (*)(char*, int, int))find("cuDeviceGetName");
  int (*attribute)(int*, int, int) = (int (*)(int*, int, int))find("cuDeviceGetAttribute");
  int (*memory)(size_t*, int) = (int (*)(size_t*, int))find("cuDeviceTotalMem_v2");
  int device;
  return get && name && attribute && memory && get(&device, i) == 0 &&
         name(gpu->name, sizeof gpu->name, device) == 0 &&
         attribute(&gpu->major, CAPABILITY_MAJOR, device) == 0 &&
         attribute(&gpu->minor, CAPABILITY_MINOR, device) == 0 && memory(&gpu->memory, device) == 0;
}
