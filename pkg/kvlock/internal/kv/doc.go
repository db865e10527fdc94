// Package kv reads, writes and watches the entries of a KV bucket, as one process sees them.
//
// It knows nothing of what an entry means. Package record has the first line that entries begin with, package lock makes
// locks of them, and package flight results.
//
// A [Store] reads entries and writes them conditionally, with an outcome that is always known. Its [Hub] tells all that
// watch a key how it changes, from one subscription and one goroutine.
package kv
