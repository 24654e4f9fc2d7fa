//go:build !unix

package vfs

import "os"

func openNow(name string) (*os.File, error) { return os.Open(name) }
