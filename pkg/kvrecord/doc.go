// Package kvrecord keeps records in a JetStream stream, one for each subject, and changes a record under the condition that
// it is still the one that was read.
//
// The server refuses a write whose condition does not hold. That alone does not tell a writer the outcome: an
// acknowledgement gets lost, and around a change of leader writes have been seen that were refused and applied all the same.
// So each write carries two headers. [HeaderWriter] is unique to a call of [Stream.Put]; [HeaderReplaced] names the record
// that was replaced. A record is replaced once, so a writer that finds another record than its own learns from it whether its
// own was stored in between. Put returns nil only for a record that the stream's leader has acknowledged, or that the record
// which replaced it names.
//
// Reads are hints. Any replica may lag behind, and a leader that was deposed answers until it knows: only Put decides.
//
// The stream keeps one message for each subject (MaxMsgsPerSubject is 1) and allows direct reads (AllowDirect), as buckets
// without history do; writes with a TTL need AllowMsgTTL. Subjects of a bucket begin with "$KV.", its name and a dot.
package kvrecord
