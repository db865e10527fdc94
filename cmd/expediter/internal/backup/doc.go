// Package backup writes the streams and buckets of one account to a folder, and restores them from there.
//
// The server makes the snapshot of a stream, with its consumers. A snapshot of a stream that is written to lacks the messages
// of that time, and of each key that was replaced meanwhile also the message that was replaced. So the messages behind the
// snapshot are read until there are no more, and appended to it: the file holds each message that the stream had when
// its backup ended.
//
// Streams are not backed up at one instant but one after the other, in the order of [Order]: what a later one holds may be newer.
// Work comes before its results, so that after a restore work may be done that is done already, which its results show, and
// no work is taken for done of which the results are missing.
package backup
