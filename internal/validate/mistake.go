// Package validate reports the mistakes of a configuration, and of the headers of messages before they are sent.
package validate

import "fmt"

// If returns an error with the text of format when the mistake was made, and otherwise nil, which errors.Join leaves out.
func If(made bool, format string, args ...any) error {
	if made {
		return fmt.Errorf(format, args...)
	}
	return nil
}
