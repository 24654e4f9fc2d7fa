// Package doctor checks whether a machine is fit for training: what its processor, memory, limits,
// folders and environment variables mean for a run, and what to do about it.
//
// A check reads the machine through [Machine], so that a test can describe any machine. Checks
// change nothing but for a file that is made and removed again to see whether a folder is writable.
package doctor
