// Package digest keeps what the digests of users collect: one record for each user, channel and window.
//
// A digest is a row of its own, which is stored before the first event goes into its record and waits for the end of the
// window. The worker that sends a digest, or ends it otherwise, seals the record first. An event is in a record once,
// however often it is put there, and no event goes into a sealed record: whichever process dies, each event is in one digest
// that is sent. A digest that is cancelled ends with its events, and later events go into the next one.
package digest
