// Package backup writes the streams and buckets of one account to a folder, and restores them from there.
//
// The server makes the snapshot of a stream, with its consumers. A snapshot of a stream that is written to lacks the messages
// of that time, and of each key that was replaced meanwhile also the message that was replaced. So the messages behind the
// snapshot are read until there are no more, and appended to it: the file holds each message that the stream had when
// its backup ended.
//
// Streams are not backed up at one instant. First come the snapshots of the streams with work, with what their consumers
// have acknowledged; then the buckets and dead letters, in full; at the end the messages behind those snapshots. So all work
// that counts as done has its outcome in a bucket, and each job, plan or row of which a bucket says that it is queued is there.
// After a restore work may be done that is done already, which its outcome shows.
package backup
