// Package deliver sends rows: it asks what the user wants, waits for the end of quiet hours, writes down that it is going
// to call the channel, calls it, and writes down what became of that.
//
// A row is sent once. It is sent again, under the same message id, only when a channel said that it had not taken it, or
// when nobody knows whether it had: its caller died, or got no answer. A channel that is set to at-most-once gives up
// such a row instead.
//
// A row may have to wait for a time that its event names, on every channel, and may be cancelled. One that has ended
// without its user being notified is followed by the row of the next channel, when its rule has an order of channels: that row
// is stored after the end is written down and before this one is acknowledged, so a crash can neither lose nor repeat
// it. A row that has failed may be sent again on request, with all its tries.
package deliver
