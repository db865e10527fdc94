// Package fetch gets files that strangers name over HTTP, without going where it must not.
package fetch
