// Package fanout turns a plan into its rows: one message for each recipient and channel, which the stream takes once.
package fanout
