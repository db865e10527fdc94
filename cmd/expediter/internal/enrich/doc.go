// Package enrich asks an enricher about the places of an input of any length and hands the results on in the order of
// the input.
//
// It sends requests of some places each, some of them at a time, and so holds no more than these. It knows nothing of
// how the enricher is reached: an embedded pipeline and a remote service look the same to it.
package enrich
