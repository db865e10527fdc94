// Package deliver sends rows: it asks what the user wants, waits for the end of quiet hours, writes down that it is going
// to call the channel, calls it, and writes down what became of that.
//
// A row is sent once. It is sent again, under the same message id, only when a channel said that it had not taken it, or
// when nobody knows whether it had: its caller died, or got no answer. A channel that is set to at-most-once gives up
// such a row instead.
package deliver
