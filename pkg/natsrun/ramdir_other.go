//go:build !linux

package natsrun

// ramDir returns "": there is no RAM file system at a known place.
func ramDir() string { return "" }
