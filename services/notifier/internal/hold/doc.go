// Package hold keeps what holds notifications back: the cancellations of events, the digests of users, and the throttles of users.
//
// A cancellation is a record in the bucket of deliveries that is created once and stays: publishing the event again sends
// nothing. No cancellation is kept for a user whom the event does not concern; while that is not certain, an event has up to
// 1,000 for single users. The key of a cancellation begins with a token that no id can have, so it cannot be taken for the key of a
// delivery. Each process has the cancellations in memory, so that they cost a notification that is sent at once nothing. The server
// pushes each new cancellation to every process, which takes some tens of microseconds. A push may be lost, so every process also asks
// for new cancellations every one to two seconds. A process that got no answer for [Trust] asks before each notification.
//
// A digest has one record for each user, channel and window, and is its own notification. That is stored before the first event
// is put into the record, and waits for the end of the window. The worker that sends a digest, or ends it otherwise, seals the record
// first. An event is in a record once, however often it is put there, and a sealed record takes no event. So, whichever process dies,
// each event is in one digest that is sent. A cancelled digest ends with its events, and later events go into the next digest.
//
// A throttle has one record for each user, channel and group of notifications, which is written only over the one that was read. A
// grant lets one notification be sent now. No stretch of time as long as the period has more grants than the limit. A notification that
// finds no room is promised a later time with room, after the times that were promised before. So notifications have their turns in
// the order in which they asked, and each waits once. One that is late for its turn may find the turn taken.
package hold
