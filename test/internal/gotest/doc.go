// Package gotest reads what "go test -json" prints: which tests failed, with all that they printed, and which were skipped
// and why.
package gotest
