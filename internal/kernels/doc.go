// Package kernels brings CPU kernels for what takes most of a training step
// beside the matrix products.
//
// An export marks the functions that it consists of by TensorFlow's _implements
// attribute: "gorbit.gelu" and so on. Each is a graph of TensorFlow's own
// operations, most of which read and write a whole tensor to do one addition or
// multiplication; on a CPU their speed is that of the memory. The kernels here do
// such a function in one pass. Package strategy puts them in the functions' place
// when it composes a graph for a CPU; the export stays what it was, and any other
// TensorFlow client, and any other device, runs TensorFlow's operations.
//
// A kernel computes the same numbers as its function up to the order of float32
// additions and the last digit of exp and erf, with the same random numbers, and the same
// from call to call whatever the number of threads: sums over rows are made of
// blocks of a fixed size, added up in order.
//
//	gelu                             x -> y
//	gelu_gradient                    dy, x -> dx, dbias, y
//	residual_norm                    x, residual, scale, offset, epsilon -> y
//	residual_norm_dropout            ..., rate, key, counter -> y, and what the gradient needs
//	residual_norm_dropout_gradient   dy, scale, rate, key, counter, ... -> dx, dbias, dresidual, dscale, doffset
//	attention                        qkv, sequence_ids, heads -> context
//	attention_dropout                ..., rate, key, counter -> context, and what the gradient needs
//	attention_dropout_gradient       dy, qkv, ... -> dqkv, dbias
//	adamw                            variable, m, v, gradient, gradient_scale, iteration, learning_rate, ...
//
// x and residual are float32 [T, H], qkv [T, 3H], sequence_ids int32 [R, S] with
// R*S = T. tools/gorbit_export/ops.py and optimizers.py are their definitions and
// docs/reference/contract.md the formulas. Attention looks only at pairs of positions of one
// sequence, keeps nothing of their number squared (its gradient computes the weights
// again, as Dao et al. 2022), and gives zeros at padding. One more operation,
// Squares, sums the squares of many tensors.
//
// The kernels are written for vectors of any width and compiled for AVX-512, AVX2 with
// FMA, and whatever the compiler takes for granted; the widest that the processor
// has are used. They are registered through TensorFlow's C interface.
package kernels
