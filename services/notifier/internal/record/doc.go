// Package record writes what may be written once: a record whose subject is empty, or is at the revision that the writer
// saw. It knows what became of a write although its answer got lost or was wrong.
package record
