package tfprocess

// #include <stdbool.h>
// void gorbit_end_crashes(bool with_cores);
import "C"

import (
	"os"
	"runtime/debug"
)

// Go ends a program that crashes with exit code 2, which is that of wrong usage, unless it is told
// to crash: then with SIGABRT, after it has printed all goroutines.
func init() {
	debug.SetTraceback("crash")
	C.gorbit_end_crashes(os.Getenv("GOTRACEBACK") == "crash")
}
