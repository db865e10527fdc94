// Package digest keeps the events of users' digests: one record for each user, channel and window.
//
// A digest is a row of its own. It is stored before the first event is put into its record, and waits for the end of the
// window. The worker that sends a digest, or ends it otherwise, seals the record first. An event is in a record once,
// however often it is put there, and a sealed record takes no event. So, whichever process dies, each event is in one digest
// that is sent. A cancelled digest ends with its events, and later events go into the next digest.
package digest
