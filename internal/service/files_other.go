//go:build !unix

package service

import "math"

// maxFiles returns the number of files that the process may open.
func maxFiles() int { return math.MaxInt32 }
