package emulator

import "fmt"

// quotef returns an error in TensorFlow's words, which are capitalized and may end with a period.
func quotef(format string, args ...any) error { return fmt.Errorf(format, args...) }
