// Package program runs other programs, and leaves nothing behind: no process, no more output than was asked for, and, with
// [Folders], no file.
package program
