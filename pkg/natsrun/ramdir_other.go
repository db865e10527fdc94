//go:build !linux

package natsrun

// ramDir returns "": this system has no RAM file system at a known path.
func ramDir() string { return "" }
