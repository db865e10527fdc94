//go:build !linux

package natsrun_test

// orphanParentMain does nothing: see orphan_linux_test.go.
func orphanParentMain() {}
