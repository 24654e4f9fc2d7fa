// Package int8 makes the dense layers of a SavedModel compute with whole numbers of 8 bits.
//
// Rewrite finds the products whose second factor is a variable, however it gets there: read, joined with
// others by columns, and given from function to function. Their variables become packed matrices of int8
// numbers with a step for each column, and each product, with the bias and the GELU that follow it, the
// call of a function. That rounds every row of the first factor to whole numbers of a step of its own,
// multiplies, and multiplies by the steps. All products of whole numbers are exact, so the results do not
// depend on the order of sums.
//
// Tables of which rows are looked up, such as embeddings, become rows of int8 numbers with a step for each
// row, and a function makes float32 numbers of the rows that were looked up.
//
// Each function is a graph of TensorFlow's own operations, so every loader of SavedModels computes it.
// The attribute _implements of products names the kernel of package kernels that does it faster.
package int8
