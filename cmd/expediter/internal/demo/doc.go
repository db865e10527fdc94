// Package demo runs the pipeline on a sample, many users asking for overlapping places at the same time, and checks
// afterwards that the guarantees held.
package demo
