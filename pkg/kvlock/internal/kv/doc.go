// Package kv reads, writes and watches the entries of a KV bucket, as one process sees them.
//
// It does not interpret entries. Package record has the first line that entries begin with, package lock makes locks of
// them, and package flight results.
//
// A [Store] reads entries and writes them conditionally, with an outcome that is always known. Its [Hub] delivers the
// changes of a key to all its watchers, from one subscription and one goroutine.
package kv
