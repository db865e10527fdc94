// Package mistake reports the mistakes of a configuration.
package mistake

import "fmt"

// If returns the error that the format says when the mistake was made, and else nil, which errors.Join leaves out.
func If(made bool, format string, args ...any) error {
	if made {
		return fmt.Errorf(format, args...)
	}
	return nil
}
