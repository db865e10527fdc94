// Package match decides whether two records of a venue are one.
package match
