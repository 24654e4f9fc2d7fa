// Package reclaim gives memory back to the operating system.
package reclaim

// #include <stdlib.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// static void trim(void) { malloc_trim(0); }
// #else
// static void trim(void) {}
// #endif
import "C"

import (
	"runtime"
	"time"
)

// Memory frees unused memory: tensors, which bindings free only in finalizers, and freed memory
// that malloc has kept, which it returns to the system. Call it between two kinds of work that
// need blocks of different sizes, such as restoring and training.
func Memory() {
	defer C.trim()
	// Finalizers run in the order of the garbage collections that queued them. Once the second
	// one below has run, all of the first collection are done. Do not wait for one that blocks.
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
