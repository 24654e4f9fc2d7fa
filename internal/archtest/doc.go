// Package archtest holds the tests of Gorbit's architecture. It has no code of its own.
//
// The tests read the module's source and its types, and check that:
//
//   - every import points to a lower layer (layers_test.go declares the layers),
//   - no exported name of a public package shows a type of an internal package,
//   - a function of more than 80 lines gives a reason,
//   - every public package has an example,
//   - the files of train and strategy call one way.
//
// Some rules have a list of known exceptions. A list may only get shorter: an exception that is no
// longer needed fails the test.
package archtest
