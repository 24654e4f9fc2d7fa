// Package checkpoint reads and writes TensorFlow checkpoints, keeps a folder of
// them, and reads weights of other origin.
//
// # Bundles
//
// A checkpoint is a tensor bundle: an index file (PREFIX.index, a sorted table
// of names, types, shapes, places and checksums) and data files
// (PREFIX.data-00000-of-00001 and so on, the tensors' bytes). [WriteBundle]
// writes one through TensorFlow's own SaveV2 operation and [Bundle.Read] reads
// tensors through RestoreV2, so that the bytes are TensorFlow's. The index is
// also parsed here, in Go, with every length checked before it is believed:
// [OpenBundle] lists a checkpoint without its data files, [Bundle.Verify]
// streams the data files through CRC-32C and names the tensor that is damaged,
// and only an index that passed reaches TensorFlow.
//
// # Names
//
// A variable has a path of elements joined by "/": model/encoder/layers/0/kernel,
// optimizer/m/model/encoder/layers/0/kernel, optimizer/iterations. The elements are
// the attribute names, dictionary keys and list positions by which Python's
// tf.train.Checkpoint reaches the variable, and the checkpoint holds that object
// graph, so Python restores what is written here and the other way round. In a
// checkpoint that Python wrote, [ObjectGraph] finds a variable by any path that
// leads to it (nodes may be shared and may form cycles), and a slot variable of
// an optimizer as <optimizer>/<slot>/<variable>. Checkpoints without an object
// graph (TensorFlow 1, Google's BERT releases) have plain names.
//
// # Folders
//
// A [Manager] keeps ckpt-<step> checkpoints in a folder, with the state file
// that tf.train.latest_checkpoint reads. A checkpoint there is complete or
// invisible: it is written under a temporary name, flushed to the disk, and
// renamed, its index last. Whatever instant a process is killed at, or a disk
// fills up, the newest complete checkpoint stays readable, and restoring checks
// every tensor's checksum before use and falls back to the one before, saying
// why. Writing happens in the background from tensors that the caller fetched.
//
// # Other weights
//
// [Load] fills wanted variables from a [Source], which is a bundle or a
// safetensors file, by their own path or by candidate names, with a report of
// what matched, what is missing, what did not fit and what was left over. Which
// foreign name belongs to which variable is the caller's knowledge.
//
// # Memory
//
// Tensors live in TensorFlow's memory and the binding frees them by finalizers
// only, which run when Go's collector does, and Go's collector does not see that
// memory. Nothing here copies a large tensor into Go. A caller that reads a
// checkpoint larger than half of its memory reads it in parts.
//
// # Threads
//
// The first session of a process decides the number of threads of TensorFlow's
// CPU kernels for good. The sessions of this package have their own pool for
// running operations and leave that number at TensorFlow's default unless
// [WithIntraOpThreads] says otherwise; a program that sets it for training
// should pass the same number here, or start its training session first.
//
// The formats are described byte by byte in docs/reference/checkpoint.md. Sources:
// tensorflow/core/util/tensor_bundle (bundle), tensorflow/core/lib/io and
// LevelDB's doc/table_format.md (index table), trackable_object_graph.proto
// and tensorflow/python/checkpoint (object graph, state file), and the
// safetensors format description by Hugging Face.
package checkpoint
