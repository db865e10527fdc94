// Package rig is what the benchmarks that compare with peers have in common: servers as processes of their own, what they
// cost, and tables of figures with their spreads.
package rig
