// Package sourcetest has a YouTube for tests: the program that fetches from it cannot tell it from the real one.
package sourcetest
