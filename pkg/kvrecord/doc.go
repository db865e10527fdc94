// Package kvrecord keeps records in a JetStream stream, one for each subject, and changes a record under the condition that
// it is still the one that was read.
//
// The server refuses a write whose condition does not hold. That alone does not show the writer the outcome: an
// acknowledgement gets lost, and around a change of leader the server has been seen to refuse a write and to apply it all
// the same. So each write carries two headers. [HeaderWriter] is unique to a call of [Stream.Put]; [HeaderReplaced] names
// the record that was replaced. A record is replaced once. So a writer that finds the record of another writer reads there
// whether its own record was stored in between. Put returns nil only when the stream's leader has acknowledged the record,
// or when a later record names it as the one that it replaced.
//
// Reads are hints: any replica may lag behind, and a leader that was deposed answers until it learns that it was. Only Put
// decides.
//
// The stream keeps one message for each subject (MaxMsgsPerSubject is 1) and allows direct reads (AllowDirect), as a bucket
// without history does. Writes with a TTL need AllowMsgTTL. Subjects of a bucket begin with "$KV.", its name and a dot.
package kvrecord
