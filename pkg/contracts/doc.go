// Package contracts holds what goes over the wire between the services, and between them and everybody else: the
// types that travel, the subjects and keys they travel under, their envelopes, and the streams and buckets they rest in.
//
// # Reading and writing
//
// [Decode] reads one message and [Encode] writes one; both validate. Reading is strict about what is known and
// tolerant about the rest: exact names, no name twice, no wrong types, no trailing data, at most [MaxBody] bytes;
// members that are not known are ignored, or carried along where the type says so. The error is always a
// [*ValidationError], which names every failing field at once by a JSON Pointer:
//
//	contracts: invalid ImportJob: /owner_id is required; /url must be an absolute http or https URL ...
//
// A [Restaurant] carries along what it does not know byte for byte: order, escapes and digits of numbers.
//
// # Ids
//
// An id is any text of up to [MaxID] bytes. Before it becomes part of a subject or a key it goes through
// [EncodeToken], which is injective, so that no id can name another's data, be a wildcard, or add a token. Ids that
// are safe tokens already stay readable. Names that programs choose (providers, channels) must be safe as they are.
//
//	jobs.enrich.<provider>.<place>                      EnrichJobSubject    stream ENRICH_JOBS
//	jobs.import.<priority>.<job>                        ImportJobSubject    stream IMPORT_JOBS
//	events.<aggregate>.<type>                           EventSubject        stream EVENTS
//	notify.plan.<event>                                 NotifyPlanSubject   stream NOTIFICATIONS
//	notify.send.<channel>.<type>.<user>.<event>         NotifySendSubject   stream NOTIFICATIONS
//	notify.send.<channel>.<type>.<user>.<event>.<n>     NotifyReplaySubject stream NOTIFICATIONS
//	dead.<stream>.<original subject>                    DeadSubject         stream DEAD
//	<provider>.<place>                                  EnrichSlotKey       bucket enrich
//	<request>                                           RequestKey          bucket requests
//	<job>                                               ImportJobKey        bucket import-jobs
//	<scope>.<step>                                      ImportStepKey       bucket import-steps
//	recipe.<recipe>                                     RecipeKey           bucket recipes
//	owner.<owner>.<recipe>                              RecipeOwnerKey      bucket recipes
//	<event>.<channel>.<type>.<user>                     DeliveryKey         bucket deliveries
//	/cancelled.<event>.all                              CancelledKey        bucket deliveries
//	/cancelled.<event>.one.<type>.<user>                CancelledUserKey    bucket deliveries
//	<type>.<user>.<event>                               InboxKey            bucket inbox
//	<type>.<user>                                       DirectoryKey        bucket directory
//
// # Envelopes
//
// Messages are CloudEvents 1.0 in binary mode: attributes in headers ce-*, the message as the body. A body without any
// header works too; [ParseCloudEvent] fills in what is missing from the subject and says so. [CloudEvent.MsgID] and
// its like name a message for the server's deduplication.
//
// # Streams and buckets
//
// [Assets] declares them once; [Check] compares a server with the declarations and [Apply] brings it there. The
// files in deploy/nats/streams, buckets and objects are generated from the same declarations, for three servers.
//
// # Versions
//
// Within a version types only grow, by optional members. Every file in testdata is read, and written with the
// same meaning, by every later version. [Schema] has the JSON Schema of each type. What a reader does not know (a
// provider, a recipient type, an import code) it accepts.
package contracts
