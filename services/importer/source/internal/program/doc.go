// Package program runs programs of others, so that nothing of them is left: no process, no more output than was asked for,
// and, with [Folders], no file.
package program
