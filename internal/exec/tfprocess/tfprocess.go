// Package tfprocess adapts TensorFlow's behaviour in the whole process: it turns off TensorFlow's
// log unless the user asks for it, fixes the default of oneDNN, tunes malloc, and makes crashes known.
// A program decides about its process, a library does not: only commands import this package, for its
// side effects,
//
//	import _ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
//
// and tests that look at numbers or memory as the commands have them. docs/guide/library.md says what
// other programs do.
//
// TensorFlow writes log lines in its library's constructors (about oneDNN and CPU features), and
// reads TF_CPP_MIN_LOG_LEVEL once, before the first line. Where the library is loaded with the
// program, as in one that was linked with it, a Go program cannot set the variable before that. C
// code cannot either: the constructors of a library run before those of the program, and earlier
// code runs before the C library has set up the environment.
//
// A program can, however, define a getenv function, which the dynamic linker uses in all libraries
// instead of the C library's. This getenv reads the environment, but returns 2 for
// TF_CPP_MIN_LOG_LEVEL if that is not set: errors are logged, warnings and notes are not. The
// environment of the program and its children does not change.
//
// Part of TensorFlow 2.18 logs through a copy of Abseil in its library, which reads no variable and
// has no accessible switch. It writes its lines to standard error with fwrite, and the package's
// fwrite drops those that are less severe than TF_CPP_MIN_LOG_LEVEL.
//
// In the same way, oneDNN is on unless TF_ENABLE_ONEDNN_OPTS is set. TensorFlow's own default
// depends on the processor, and so would the last digits of a run's results. OneDNN changes the
// setting from the program.
//
// TensorFlow's library for TPUs takes the chips of the machine when it is loaded. Only a process that
// calls TPU before does so, so that a client does not keep the chips from the server.
//
// The C library's malloc returns large freed blocks to the system, and a training step then gets
// them back page by page. The package makes malloc keep them, which makes steps some 4 % faster,
// unless the environment configures malloc with MALLOC_TRIM_THRESHOLD_ or similar variables or
// GLIBC_TUNABLES. MallocKeeps reports whether it is so.
//
// A process that crashes ends with its signal, whoever crashed: Go, which otherwise ends a program
// with exit code 2 after a panic, as if it had been used wrongly, C code that Go called, or a thread of
// TensorFlow's. The last line on standard error says so, after Go's dump of all goroutines or the calls
// of the thread in C. Its memory, which may be large, is not written to a file unless GOTRACEBACK is
// crash, whatever the limit for such files is. A panic that is recovered is none of this.
//
// The package works with every binding and imports none.
package tfprocess

// #cgo linux LDFLAGS: -ldl
// #if !__has_include("tensorflow/c/c_api.h")
// #error TensorFlow is not set up for Go: run "go run github.com/gorbit-ml/gorbit/cmd/gorbit-setup@latest", or in a checkout of gorbit "make setup" and "source .tf/env"
// #endif
// #include <stdbool.h>
// bool gorbit_malloc_keeps(void);
import "C"

// MallocKeeps reports whether the package made malloc keep freed memory.
func MallocKeeps() bool { return bool(C.gorbit_malloc_keeps()) }
