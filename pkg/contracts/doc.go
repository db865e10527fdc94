// Package contracts defines the messages between the services and their clients: their types, subjects, keys and
// envelopes, and the streams and buckets that store them.
//
// # Reading and writing
//
// [Decode] reads one message and [Encode] writes one; both validate. Reading is strict with known members and tolerant
// with others: exact names, no name twice, no wrong types, no trailing data, at most [MaxBody] bytes; unknown members
// are ignored, or kept where the type says so. The error is always a [*ValidationError], which names every failing
// field at once by a JSON Pointer:
//
//	contracts: invalid ImportJob: /owner_id is required; /url must be an absolute http or https URL ...
//
// A [Restaurant] keeps unknown members byte for byte: order, escapes and digits of numbers. An [Event] keeps members without a field in
// Extra, where its sources and readers agree on more than this package knows.
//
// # Ids
//
// An id is any text of up to [MaxID] bytes. Before it becomes part of a subject or a key it goes through
// [EncodeToken], which is injective, so that no id can name another's data, be a wildcard, or add a token. Ids that
// are safe tokens already stay readable. Names that programs choose (providers, channels) must be safe as they are.
//
//	jobs.enrich.<provider>.<place>[.<variant>]     EnrichJobSubject   stream ENRICH_JOBS
//	jobs.import.<priority>.<job>                   ImportJobSubject   stream IMPORT_JOBS
//	events.<aggregate>.<type>                      EventSubject       stream EVENTS
//	notify.send.<channel>.<type>.<user>.<event>    NotifySendSubject  stream NOTIFICATIONS
//	dead.<stream>.<original subject>                                  stream DEAD
//	<provider>.<place>[.<variant>]                 EnrichEntryKey     bucket enrich
//	<type>.<user>.<event>                          InboxKey           bucket inbox
//
// asyncapi.json lists all subjects. The keys of the other buckets are their service's own.
//
// # Envelopes
//
// Messages are CloudEvents 1.0 in binary mode: attributes in headers ce-*, the message as the body. A body without any
// header works too.
// [CloudEvent.MsgID] and [MsgID] return the ids by which the server drops duplicates.
//
// # Streams and buckets
//
// [Assets] declares them once. `expediter apply` makes a server match them. The files in deploy/nats/streams, buckets and
// objects are generated from the same declarations, for three servers.
//
// # Versions
//
// Within a version types only grow, by optional members. Every file in testdata is read, and written with the same
// meaning, by every later version. [Schema] returns the JSON Schema of each type. A reader accepts unknown providers,
// recipient types and import codes.
package contracts
