// Package reclaim gives memory back to the operating system.
package reclaim

// #include <stdlib.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// static void trim(void) { malloc_trim(0); }
// static void release(void) { mallopt(M_MMAP_THRESHOLD, 1 << 17); mallopt(M_MMAP_MAX, 1 << 16); }
// #else
// static void trim(void) {}
// static void release(void) {}
// #endif
import "C"

import (
	"os"
	"runtime"
	"time"
)

// systemAllocator is what TensorFlow reads when it takes memory for its first tensor.
const systemAllocator = "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"

// LargeBlocks makes malloc give blocks of 128 KiB or more back to the system as soon as they are freed, from
// now on, and TensorFlow take tensors from malloc. Its own allocator never gives memory back; it stays in use if
// there was a tensor before, or if the environment says so. Steps become a little slower, and take no more memory
// than is in use.
func LargeBlocks() {
	C.release()
	if os.Getenv(systemAllocator) == "" {
		_ = os.Setenv(systemAllocator, "1") // fails for names that are not names only
	}
}

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
