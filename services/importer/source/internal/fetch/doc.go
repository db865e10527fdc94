// Package fetch gets files over HTTP from untrusted addresses, and only from permitted networks.
package fetch
