// Package fanout turns a plan into its rows: one message for each recipient and channel, which the stream takes once. Rows of the inbox
// that may be delivered at once are delivered instead, and not stored.
package fanout
