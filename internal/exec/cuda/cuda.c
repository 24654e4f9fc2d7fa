#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>

// CUDA's functions return 0 on success.
typedef int (*of_int)(int*);

// Attributes of cuDeviceGetAttribute.
enum { MULTIPROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };

// Of TensorFlow's C API. A call loads TensorFlow's library, if it is not loaded yet (cmd/gorbit-setup/loader).
extern const char* TF_Version(void);

// tensorflow returns a function that TensorFlow's library exports.
static void* tensorflow(const char* name) {
  TF_Version();
  return dlsym(RTLD_DEFAULT, name);
}

// driver returns a function of CUDA's driver.
static void* driver(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY);
  return library ? dlsym(library, name) : NULL;
}

static int ask(void* function) {
  int answer = 0;
  return function && ((of_int)function)(&answer) == 0 ? answer : 0;
}

static bool initialized(void) {
  // The driver first: a machine without one needs no TensorFlow to count no GPUs.
  int (*init)(unsigned) = (int (*)(unsigned))driver("cuInit");
  return init && gorbit_cuda_built() && init(0) == 0;
}

bool gorbit_cuda_built(void) {
  // bool tensorflow::IsGoogleCudaEnabled(), which Python's tf.test.is_built_with_cuda asks.
  bool (*enabled)(void) = (bool (*)(void))tensorflow("_ZN10tensorflow19IsGoogleCudaEnabledEv");
  return enabled && enabled();
}

int gorbit_cuda_runtime(void) { return ask(tensorflow("cudaRuntimeGetVersion")); }

int gorbit_cuda_driver(void) { return initialized() ? ask(driver("cuDriverGetVersion")) : 0; }

int gorbit_cuda_count(void) { return initialized() ? ask(driver("cuDeviceGetCount")) : 0; }

bool gorbit_cuda_device(int i, gorbit_gpu* gpu) {
  int (*get)(int*, int) = (int (*)(int*, int))driver("cuDeviceGet");
  int (*name)(char*, int, int) = (int (*)(char*, int, int))driver("cuDeviceGetName");
  int (*attribute)(int*, int, int) = (int (*)(int*, int, int))driver("cuDeviceGetAttribute");
  int (*memory)(size_t*, int) = (int (*)(size_t*, int))driver("cuDeviceTotalMem_v2");
  int device;
  return get && name && attribute && memory && get(&device, i) == 0 &&
         name(gpu->name, sizeof gpu->name, device) == 0 &&
         attribute(&gpu->major, CAPABILITY_MAJOR, device) == 0 &&
         attribute(&gpu->minor, CAPABILITY_MINOR, device) == 0 &&
         attribute(&gpu->multiprocessors, MULTIPROCESSORS, device) == 0 && memory(&gpu->memory, device) == 0;
}
