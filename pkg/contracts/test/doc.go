// Package test holds the tests of package contracts that need a server, a schema validator or another
// implementation of CloudEvents, so that the library does not.
package test
