// Package checkpoint reads and writes TensorFlow checkpoints, manages folders of them,
// and reads weights from other sources.
//
// # Bundles
//
// A checkpoint is a tensor bundle: an index file (PREFIX.index, a sorted table of
// names, types, shapes, positions and checksums) and data files
// (PREFIX.data-00000-of-00001 and so on, the tensors' bytes). [WriteBundle] writes a
// bundle with TensorFlow's own SaveV2 operation and [Bundle.Read] reads tensors with
// RestoreV2, so that the bytes are TensorFlow's. The index is also parsed in Go, and
// every length is checked before it is used: [OpenBundle] lists a checkpoint without
// its data files, [Bundle.Verify] checks the CRC-32C of the data files and names a
// damaged tensor, and only a valid index is passed to TensorFlow.
//
// # Names
//
// A variable has a path of elements joined by "/": model/encoder/layers/0/kernel,
// optimizer/m/model/encoder/layers/0/kernel, optimizer/iterations. The elements are the
// attribute names, dictionary keys and list positions by which Python's
// tf.train.Checkpoint reaches the variable. The checkpoint contains that object graph,
// so Python can restore checkpoints of this package and vice versa. In a checkpoint
// written by Python, [ObjectGraph] finds a variable by any path that leads to it (nodes
// may be shared and may form cycles), and a slot variable of an optimizer as
// <optimizer>/<slot>/<variable>. Checkpoints without an object graph (TensorFlow 1,
// Google's BERT releases) have plain names.
//
// # Folders
//
// A [Manager] keeps ckpt-<step> checkpoints in a folder, with the state file that
// tf.train.latest_checkpoint reads. A checkpoint there is complete or invisible: it is
// written under a temporary name, flushed to disk, and renamed, its index last. Whenever
// a process is killed or a disk fills up, the newest complete checkpoint stays readable.
// Restoring verifies the checksum of each tensor before use, and falls back to the
// previous checkpoint with the reason. Checkpoints are written in the background, from
// tensors that the caller has fetched.
//
// # Other weights
//
// [Load] fills variables from a [Source], which is a bundle or a file of safetensors
// or GGUF. It
// finds them by their own path or by candidate names from the caller, and reports which
// variables matched, are missing or do not fit, and which tensors were not used.
//
// # Memory
//
// Tensors are in TensorFlow's memory. The binding frees them only in finalizers, which
// run with Go's garbage collector, and the collector does not see that memory. Nothing
// here copies a large tensor into Go memory. A caller should read a checkpoint that is
// larger than half of the memory in parts.
//
// # Threads
//
// The first session of a process determines the number of threads of TensorFlow's CPU
// kernels for all sessions. The sessions of this package have their own pool for running
// operations and leave that number at TensorFlow's default, unless
// [WithIntraOpThreads] is set. A program that sets the number for training should pass
// the same number here, or start its training session first.
//
// The formats are described byte by byte in docs/reference/checkpoint.md. Sources:
// tensorflow/core/util/tensor_bundle (bundle), tensorflow/core/lib/io and
// LevelDB's doc/table_format.md (index table), trackable_object_graph.proto
// and tensorflow/python/checkpoint (object graph, state file), and the
// safetensors format description by Hugging Face, and ggml's docs/gguf.md.
package checkpoint
