// Package digest keeps what the digests of users collect: one record for each user, channel and window.
//
// A digest is a row of its own, which is stored before the first event goes into its record and waits for the end of the
// window. It seals the record before it is told. An event is in a record once, however often it is put there, and none
// goes into one that is sealed: whatever dies, each event is in one digest that is told.
package digest
