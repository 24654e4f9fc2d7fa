#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>

// Of TensorFlow's C API. A call loads TensorFlow's library, if it is not loaded yet (cmd/gorbit-setup/loader).
extern const char* TF_Version(void);

// gorbit_full_float32 does what Python's tf.config.experimental.enable_tensor_float_32_execution(False)
// does. It returns whether it could.
bool gorbit_full_float32(void) {
  TF_Version();
  void (*enable)(bool) = (void (*)(bool))dlsym(RTLD_DEFAULT, "_ZN3tsl32enable_tensor_float_32_executionEb");
  bool (*enabled)(void) = (bool (*)(void))dlsym(RTLD_DEFAULT, "_ZN3tsl33tensor_float_32_execution_enabledEv");
  if (!enable || !enabled) return false;
  enable(false);
  return !enabled();
}
