// Package tfprocess keeps TensorFlow's own log off the terminal of a program that
// imports it, unless the user asks for it:
//
//	import _ "github.com/gorbit-ml/gorbit/internal/tfprocess"
//
// TensorFlow logs from the constructors of its library (that oneDNN is on, what
// the CPU could do) and reads TF_CPP_MIN_LOG_LEVEL once, at its first line. All
// that happens before a Go program's first instruction, so setting the variable
// from Go is too late, and setting it from C is too: the constructors of a
// library run before those of the program, and what runs earlier still comes
// before the C library has taken up the environment.
//
// What a program can do is bring a getenv of its own, which the dynamic linker
// gives to every library in place of the C library's. This one answers from
// the environment, and where TF_CPP_MIN_LOG_LEVEL is not set there, with 2: errors
// are logged, warnings and notes are not. The environment itself stays as it is, for
// the program and for its children.
//
// Part of TensorFlow 2.18 logs through a copy of Abseil inside its library, which
// heeds no variable and has no switch that a program could reach. Its lines go
// through fwrite to standard error, and the package's fwrite drops those that are
// less severe than TF_CPP_MIN_LOG_LEVEL.
//
// oneDNN, in the same way, is on unless TF_ENABLE_ONEDNN_OPTS says otherwise:
// TensorFlow's own default depends on the processor, and so would a run's results
// in their last digits. OneDNN changes it for a program that has read what to use.
//
// The C library's malloc gives large pieces back to the system when they are freed,
// and a training step takes them again, page by page. The package has it keep
// them, which makes steps some 4 % faster, unless MALLOC_TRIM_THRESHOLD_ or its like, or
// GLIBC_TUNABLES, say how malloc is to behave. MallocKeeps tells.
//
// The package works with every binding and imports none.
package tfprocess

// #cgo linux LDFLAGS: -ldl
// #include <stdbool.h>
// bool gorbit_malloc_keeps(void);
// void gorbit_malloc_trim(void);
import "C"

import (
	"runtime"
	"time"
)

// MallocKeeps reports whether malloc was told to keep freed memory.
func MallocKeeps() bool { return bool(C.gorbit_malloc_keeps()) }

// Reclaim frees what the program no longer uses: tensors, which the bindings free by
// finalizers alone, and what malloc has kept of what was freed, which goes back to the
// system. It is for the moment between two kinds of work, such as restoring and
// training, whose pieces of memory differ in size.
func Reclaim() {
	defer C.gorbit_malloc_trim()
	// Finalizers run in the order of the collections that found them: with that of the
	// second, those of the first are done. One that blocks is not waited for.
	late := time.After(time.Second)
	for range 2 {
		ran := make(chan struct{})
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(ran) })
		runtime.GC()
		select {
		case <-ran:
		case <-late:
			return
		}
	}
}
