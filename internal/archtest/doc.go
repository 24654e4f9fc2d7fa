// Package archtest holds the tests of Gorbit's architecture. It has no code of its own.
//
// The tests read the module's source and its types, and check that:
//
//   - no import points to a higher tier (tiers_test.go declares the tiers),
//   - no exported name of a public package shows a type of an internal package,
//   - a function of more than 80 lines gives a reason,
//   - every public package has an example.
//
// Some rules have a list of known exceptions. A list may only get shorter: an exception that is no
// longer needed fails the test.
package archtest
