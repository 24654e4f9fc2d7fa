// Package altstack has the handlers of signals run on stacks of their own in the
// threads of TensorFlow too:
//
//	import _ "github.com/gorbit-ml/gorbit/internal/altstack"
//
// In a matrix product of 2048 terms and more, oneDNN's generated code keeps its
// buffer, a piece of the heap, in the register of the stack (until oneDNN 3.11.2,
// https://github.com/uxlfoundation/oneDNN/issues/4845; TensorFlow 2.18 has 3.5, with
// oneDNN's operations off as with them on). A signal that comes to the thread then
// has its frame written over what lies below that piece, and the process dies at a
// later free. Go's CPU profiler sends such signals a hundred times a second; any other
// may come to such a thread too, if rarely.
//
// Go asks for its handlers to run on a thread's alternate stack, and its own threads
// have one. The package brings a pthread_create of its own, which the dynamic linker gives to every
// library in place of the C library's, and which gives one to every thread.
package altstack

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ldl -lpthread
import "C"
