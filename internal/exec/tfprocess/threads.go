package tfprocess

import "os"

// threadsVariable is the environment variable that TensorFlow reads when it makes its first session.
const threadsVariable = "TF_OVERRIDE_GLOBAL_THREADPOOL"

// SessionThreads gives each session of the process as many threads for the parts of operations as its
// configuration says. Otherwise all sessions share the threads of the first one. The environment's own
// setting is kept. It must be called before the first session is made.
func SessionThreads() error {
	if os.Getenv(threadsVariable) != "" {
		return nil
	}
	return os.Setenv(threadsVariable, "1")
}
