//go:build !unix

package service

import "math"

// maxFiles returns how many files the process may open.
func maxFiles() int { return math.MaxInt32 }
