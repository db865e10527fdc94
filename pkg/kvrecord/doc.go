// Package kvrecord keeps records in a JetStream stream, one for each subject, and changes a record only if it is still the record that was
// read.
//
// The server refuses a write whose condition is not met. The writer may still not know the outcome: an acknowledgement gets lost, and
// around a change of leader the server has been seen to refuse a write and to apply it all the same. So each write carries two headers.
// [HeaderWriter] is unique to a call of [Stream.Put]; [HeaderReplaced] names the record that was replaced. A record is replaced once. So a
// writer that finds the record of another writer learns from it whether its own record was stored in between. Put returns nil only when
// the stream's leader has acknowledged the record, or when a later record names it as the replaced record.
//
// Reads are hints: any replica may lag behind, and a deposed leader answers until it learns that it was deposed. Only Put decides.
//
// The stream keeps one message for each subject (MaxMsgsPerSubject is 1) and allows direct reads (AllowDirect), as a bucket
// without history does. Writes with a TTL need AllowMsgTTL. Subjects of a bucket begin with "$KV.", its name and a dot.
package kvrecord
