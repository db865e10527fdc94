// Package cancel keeps which events are cancelled, for all their recipients or for one of them.
//
// A cancellation is a record in the bucket of deliveries that is created once and stays: an event that is published again
// after it is not sent. None is kept for a user whom the event does not concern; while that is not certain, an event has up to
// 1,000 for single users. An event that is cancelled for all before it is published has no rows, and so no cancellation here.
// The key of a cancellation begins with a token that no id can have, so it is never taken for that of a row.
//
// Each process has the cancellations in memory, so that a row that is sent at once pays nothing for them. The server
// repeats each new one to every process, which takes some tens of microseconds. A push may be lost, so every process also
// asks for new cancellations every one to two seconds; and one that could not ask for [Trust] asks before each row.
package cancel
