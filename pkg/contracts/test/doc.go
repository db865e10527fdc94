// Package test holds the tests of package contracts that need a server, a schema validator or another implementation of CloudEvents. The
// library then needs none of these.
package test
