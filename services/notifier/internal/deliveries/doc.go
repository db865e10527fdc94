// Package deliveries keeps what became of each row: its state, why it has it, and every attempt to send it.
//
// An attempt is written down before the far side is called. So whoever finds one that has no outcome knows that the far
// side may have been called, and by whom, although the caller is gone.
package deliveries
