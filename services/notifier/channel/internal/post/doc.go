// Package post makes the call of a channel that speaks HTTP, and says what its answer means.
package post
