// Package kernels provides CPU kernels for the most expensive parts of a training step other than
// matrix products.
//
// An export marks its functions with TensorFlow's _implements attribute: "gorbit.gelu" and so on.
// Each function is a graph of TensorFlow's own operations. Most of them read and write a whole
// tensor for one addition or multiplication, so on a CPU they are limited by memory bandwidth. A
// kernel computes such a function in one pass. Package strategy replaces the functions by kernels
// when it composes a graph for CPUs. The export does not change, and other TensorFlow clients and
// other devices run TensorFlow's operations.
//
// A kernel computes the same values as its function, except for the order of float32 additions and
// the last digit of exp and erf, and uses the same random numbers. Its results do not depend on the
// number of threads: sums over rows are sums of blocks of a fixed size, added in order.
//
//	dense_int8                       x, w -> y
//	dense_bias_int8, dense_gelu_int8 x, w, bias -> y
//	gelu                             x -> y
//	gelu_gradient                    dy, x -> dx, dbias, y
//	gelu_tanh                        x -> y
//	gelu_tanh_gradient               dy, x -> dx, dbias, y
//	residual_norm                    x, residual, scale, offset, epsilon -> y
//	residual_norm_dropout            ..., rate, key, counter -> y, and the gradient's inputs
//	residual_norm_dropout_gradient   dy, scale, rate, key, counter, ... -> dx, dbias, dresidual, dscale, doffset
//	scale_norm                       x, scale, epsilon -> y, mean, reciprocal
//	scale_norm_gradient              dy, x, scale, mean, reciprocal -> dx, dscale
//	residual_dropout                 x, residual, rate, key, counter -> y, and the gradient's input
//	residual_dropout_gradient        dy, rate, key, counter, ... -> dx
//	geglu                            x -> y
//	geglu_dropout                    x, rate, key, counter -> y, and the gradient's input
//	geglu_dropout_gradient           dy, x, rate, key, counter, ... -> dx, y
//	rotary                           x, cosines, sines, heads -> y
//	attention                        qkv, sequence_ids, heads -> context
//	attention_dropout                ..., rate, key, counter -> context, and the gradient's inputs
//	attention_dropout_gradient       dy, qkv, ... -> dqkv, dbias
//	causal_attention                 qkv, sequence_ids, heads -> context
//	causal_attention_dropout         ..., rate, key, counter -> context, and the gradient's inputs
//	causal_attention_dropout_gradient dy, qkv, ... -> dqkv, dbias
//	local_attention                  qkv, sequence_ids, heads, window -> context
//	local_attention_dropout          ..., rate, key, counter -> context, and the gradient's inputs
//	local_attention_dropout_gradient dy, qkv, ... -> dqkv
//	token_losses                     logits, labels, weights, smoothing -> losses, right, dlogits
//	next_product                     x, w -> y
//	next_product_transposed          x, w -> y
//	next_map                         x, w, bias, activation -> y
//	next_maps                        x, w0, bias0, w1, bias1, w2, bias2 -> y0, y1, y2
//	next_map_add                     x, context, w, bias -> y
//	next_map_transposed              x, w, bias -> y
//	next_norm                        x, scale, offset, epsilon -> y
//	next_normed_products             x, scale, epsilon, w0, w1, w2 -> y0, y1, y2
//	next_feed_forward                x, context, output, scale, epsilon, gate, up, down -> y
//	rms_norm                         x, scale, epsilon -> y
//	swiglu                           gate, x -> y
//	next_attention                   query, key, value, allowed, heads, shared, scale -> context
//	next_attention_biased            ..., bias -> context
//	next_cached_attention            query, key, value, slots, context, positions, heads, shared, scale,
//	                                 window, keys, values -> context
//	next_cached_attention_biased     ..., bias -> context
//	next_source_attention            query, source, heads, shared, scale, keys, values -> context
//	adamw                            variable, m, v, gradient, gradient_scale, iteration, learning_rate, ...
//	sgd, lion                        variable, m, gradient, gradient_scale, iteration, learning_rate, ...
//
// x and residual are float32 [T, H], qkv [T, 3H], sequence_ids int32 [R, S] with R*S = T. Attention,
// GELU and residual norms also take a product's bfloat16 numbers, and give those that the next product
// takes: they compute in float32 and round their results. The matrices of generation's products may be
// bfloat16, too. The functions are defined in tools/gorbit_export/ops.py, local.py, prenorm.py,
// rotary.py and optimizers/, and the formulas are in docs/reference/contract.md. Attention uses only
// pairs of positions of the same sequence and is zero at padding. It stores no matrix of pairs: the
// gradient recomputes the weights, as in Dao et al. 2022. It takes a part of the queries at a time,
// those of a block of the window if there is one, so that a token of a long row costs what one of a
// short row does. One more operation, Squares, sums the squares of many tensors. Mapped makes tensors of
// files, and MappedUpdate are updates of slots in such tensors, with the bits of those above.
//
// dense_int8 is the product of rows that are rounded to 255 steps each and a matrix of such numbers,
// w, as package dense makes it. The sums are whole numbers, and what follows them, but for GELU, is
// rounded in the same way everywhere: results do not depend on the instruction set.
//
// The kernels are written for vectors of any width and compiled for AVX-512 and for AVX2 with FMA, or
// for NEON on 64-bit ARM, and for the compiler's default target. The widest version that the processor
// supports is used. The kernels are registered with TensorFlow's C API.
package kernels
