package tfprocess

import "os"

// loadTPU is the environment variable that TensorFlow's library for TPUs reads when it is loaded.
const loadTPU = "TPU_LOAD_LIBRARY"

// TPU lets this process have the TPU of its machine, which no other process can have then. Without it
// TensorFlow's library for TPUs takes no chips, unless the environment says so. It must be called before
// the first call of TensorFlow.
func TPU() error {
	if _, set := os.LookupEnv(loadTPU); set {
		return nil
	}
	// Neither 0 nor 1, which takes chips that another process has.
	return os.Setenv(loadTPU, "")
}
