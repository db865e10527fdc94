// Package digest keeps what the digests of users collect: one record for each user, channel and window.
//
// A digest is a row of its own, which is stored before the first event goes into its record and waits for the end of the
// window. Whoever tells it, or ends it otherwise, seals the record first. An event is in a record once, however often it is put
// there, and none goes into one that is sealed: whatever dies, each event is in one digest that is told. One that is cancelled takes
// what is in it, and what comes later goes into the next.
package digest
