// Package columns collects the values of features from records: one column for each feature of a
// batch, of any dtype. The layouts dataset/dense and dataset/packed are made of columns.
package columns
