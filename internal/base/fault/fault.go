// Package fault divides errors into classes, one for each exit code of the programs.
//
// An error type belongs to a class if its Is method says so:
//
//	func (e *CorruptError) Is(target error) bool { return target == fault.Damaged }
//
// Code that handles an error asks for its class and needs no list of types. A class is a short
// word, so it can be sent to another process.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Class is a kind of failure. It is an error itself, so that errors.Is can find it.
type Class string

const (
	// Usage is a mistake in flags, params or other input that the user typed.
	Usage Class = "usage"
	// Damaged is corrupt or invalid data: records, checkpoints, rows.
	Damaged Class = "damaged"
	// Stopped is work that was asked to stop early and has been saved.
	Stopped Class = "stopped"
	// Failed is everything else.
	Failed Class = "failed"
)

// Error returns the class's name.
func (c Class) Error() string { return string(c) }

// Exit codes of the programs.
const (
	ExitDone    = 0
	ExitFailed  = 1
	ExitUsage   = 2
	ExitDamaged = 3
	ExitStopped = 75
)

// Of returns the class of an error. A canceled context is Stopped; an error of no class is Failed. What the
// machine could not read is not Damaged, whatever else the error says.
func Of(err error) Class {
	if errors.Is(err, context.Canceled) {
		return Stopped
	}
	for _, c := range []Class{Stopped, Usage, Damaged} {
		if errors.Is(err, c) && (c != Damaged || !OfMachine(err)) {
			return c
		}
	}
	return Failed
}

// ExitCode returns the exit code of a program that ends with err; ExitDone if err is nil.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	switch Of(err) {
	case Usage:
		return ExitUsage
	case Damaged:
		return ExitDamaged
	case Stopped:
		return ExitStopped
	}
	return ExitFailed
}

// ExitMachine is the exit code with which a trial of a study says that its error is one of the machine: see
// OfMachine. It is that of sysexits' EX_IOERR.
const ExitMachine = 74

// machine are the numbers of the errors that OfMachine is about.
var machine = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EROFS, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}

// OfMachine reports whether an error is one of the machine, such as a full disk or one that cannot be
// read now, and none of what it was to do: the same work may succeed later.
func OfMachine(err error) bool {
	return slices.ContainsFunc(machine, func(of syscall.Errno) bool { return errors.Is(err, of) })
}

// Numbered gives an error that is only a text, such as one of TensorFlow, the error number that the text
// names, so that OfMachine and errors.Is find it.
func Numbered(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	for _, errno := range append(slices.Clone(machine), syscall.EFBIG, syscall.EACCES, syscall.EPERM, syscall.ENOENT) {
		if strings.Contains(text, errno.Error()) {
			return &numbered{err, errno}
		}
	}
	return err
}

type numbered struct {
	err   error
	errno syscall.Errno
}

func (e *numbered) Error() string   { return e.err.Error() }
func (e *numbered) Unwrap() []error { return []error{e.err, e.errno} }

// Error is an error with a class.
type Error struct {
	Class Class
	Err   error
}

// Error returns the cause's message.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the target is the error's class.
func (e *Error) Is(target error) bool { return target == e.Class }

// Usagef returns an error of class Usage.
func Usagef(format string, args ...any) error { return &Error{Usage, fmt.Errorf(format, args...)} }

// Damagedf returns an error of class Damaged.
func Damagedf(format string, args ...any) error { return &Error{Damaged, fmt.Errorf(format, args...)} }
