// Package cancel keeps the cancellations of events, for all recipients or for one.
//
// A cancellation is a record in the bucket of deliveries that is created once and stays: publishing the event again sends
// nothing. No cancellation is kept for a user whom the event does not concern; while that is not certain, an event has up to
// 1,000 for single users. The key of a cancellation begins with a token that no id can have, so it cannot be taken for the key of a row.
//
// Each process has the cancellations in memory, so that they cost a row that is sent at once nothing. The server pushes
// each new cancellation to every process, which takes some tens of microseconds. A push may be lost, so every process
// also asks for new cancellations every one to two seconds. A process that got no answer for [Trust] asks before each
// row.
package cancel
