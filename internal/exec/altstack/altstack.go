// Package altstack makes signal handlers run on alternate stacks in TensorFlow's threads, too:
//
//	import _ "github.com/gorbit-ml/gorbit/internal/exec/altstack"
//
// In a matrix product of 2048 or more terms, oneDNN's generated code stores the address of a heap
// buffer in the stack pointer (fixed in oneDNN 3.11.2,
// https://github.com/uxlfoundation/oneDNN/issues/4845; TensorFlow 2.18 has 3.5, whether or not
// oneDNN's operations are on). If the thread gets a signal at that time, the signal frame
// overwrites the memory below the buffer, and the process crashes in a later free. Go's CPU
// profiler sends such signals a hundred times a second. Other signals are possible, but rare.
//
// Go asks for its handlers to run on a thread's alternate stack, and Go's own threads have one. The
// package defines a pthread_create that gives one to every thread. The dynamic linker uses it in
// all libraries, instead of the C library's.
package altstack

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ldl -lpthread
import "C"
