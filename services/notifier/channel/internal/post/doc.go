// Package post makes the calls of channels that speak HTTP, and classifies the answers.
package post
