// Package dense has the dense layers of a SavedModel compute with packed matrices.
//
// It finds the products whose second factor is a variable, however it gets there: read, joined with others by
// columns, and given from function to function. Their variables become packed matrices, and each product,
// with the bias and the GELU that follow it, becomes one operation.
//
// Float32 does so in a graph that is about to be run: the operations are those of package kernels, which the
// graph also has pack the matrices after its variables have been restored.
//
// Int8 does so in a model that is written. The matrices are int8 numbers with a step for each column, and a
// product is the call of a function. That rounds every row of the first factor to whole numbers of a step of
// its own, multiplies, and multiplies by the steps. All products of whole numbers are exact, so the results
// do not depend on the order of sums. Tables of which rows are looked up, such as embeddings, become rows of
// int8 numbers with a step for each row, and a function makes float32 numbers of the rows that were looked
// up. Each function is a graph of TensorFlow's own operations, so every loader of SavedModels computes it.
// The attribute _implements of products names the kernel of package kernels that does it faster.
package dense
