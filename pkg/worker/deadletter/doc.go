// Package deadletter lists the jobs that were given up, and runs them again.
//
//	store, err := deadletter.Open(ctx, js, deadletter.Config{})
//	...
//	overview, err := store.Groups(ctx, deadletter.Filter{Since: yesterday})
//	for _, group := range overview.Groups {
//		fmt.Println(group.Count, group.Signature, group.Subjects)
//	}
//	...
//	filter := overview.Groups[0].Filter(deadletter.Filter{Since: yesterday})
//	result, err := store.Replay(ctx, filter, deadletter.ReplayOptions{DryRun: true})
//
// A [Filter] selects the same letters in every call: List yields and Replay replays the letters that Groups counts.
//
// # Replay
//
// A replay publishes the job to its subject and removes the letter. The job has its former headers, without those that the
// server reads ("Nats-...", but for Nats-TTL). It keeps its ID (worker.HeaderID), so that everything that is keyed by the ID
// resumes. Unless its payload was edited, it goes on after the steps whose results are recorded (package step,
// worker.HeaderResume). worker.HeaderReplay counts its replays, and worker.HeaderReplayOf names the letter. Its message ID
// is new and belongs to the letter, so that deduplication never drops it.
//
// The letter is removed only after the server has stored the job: a replay that is interrupted loses nothing.
//
// A replay that is interrupted after it has removed a letter may leave its record behind, of up to 16 letters.
// The next Replay or Discard whose filter reaches it, by time, removes it.
//
// No letter is replayed twice. Before a replay publishes the job, it writes a record beside the letters, which only one of
// several replays can do. A later replay, now or after a month, finds out whether an interrupted one published the job. If
// it did, the job still lies in its stream, or the worker that worked it has recorded that before it removed the job.
// Otherwise the job was never published, and is published now, under the same message ID. The record of the worker costs a
// replayed job one round trip. When the replay was not interrupted the server refuses it, so nothing is left.
//
// Programs without a worker record nothing about their jobs (worker.DeadLetter.Worker is empty). An interrupted replay of
// such a job is repeated within the duplicate window of the job's stream. After that, a job that is not in its stream is
// left alone, with [ErrUnsettled]: replay it with ReplayOptions.Again, which may run it twice, or discard it.
//
// A job may run twice in two cases. A process is suspended right before it publishes the job, for longer than the duplicate
// window, while another process finishes the replay. Or the worker cannot write to the dead letter stream while it settles a
// job whose replay was interrupted (it logs worker.replay_unmarked).
//
// The replay of a unique job (header Job-Keep) is published under the condition of its insertion. When another job holds the
// key by then, the letter stays, with a [TakenError].
//
// # Stranded messages
//
// A worker of this project leaves no message stranded. Other consumers do, at their MaxDeliver. The server publishes that
// once, in an advisory, which the dead letter stream stores when its subjects include
//
//	$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>
//	$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>
//
// They are entries of [KindStranded], with the message itself while its stream has it. One kind is none: the server also
// publishes that a message left its stream while the leader of a consumer waited for the acknowledgement, which after a change of
// leader it may not know of. In a work queue without MaxAge, that refuses new messages when it is full, such a message was
// acknowledged, deleted on purpose, or its own TTL ended. In other streams it may also have been dropped unworked. The advisory
// does not say which, and the message is gone, so there it remains an entry, with [ErrGone]. Each advisory of that kind costs two
// round trips where letters are listed or grouped. The server may publish more than one
// advisory about a message. A replay of a message from a work queue first makes a dead letter of it: the letter is stored,
// then the message is removed from its stream. So nothing is lost, and a stream that takes each subject once takes the
// message again. Do not replay a message that its consumer may still deliver because its MaxDeliver was raised. Messages of
// other streams are left alone: they belong to all consumers there.
//
// [Store.Stranded] finds the messages that no consumer takes, and those that their consumer has passed.
//
// # On the server
//
// The dead letter stream must not be a work queue, and has AllowDirect. Permissions, to publish:
//
//	$JS.API.STREAM.INFO.*                      look up streams
//	$JS.API.STREAM.MSG.GET.*                   read letters, stranded messages, replayed jobs
//	$JS.API.DIRECT.GET.<dead stream>           list
//	$JS.API.CONSUMER.LIST.*                    Stranded
//	$JS.API.STREAM.MSG.DELETE.*                replay, discard
//	<dead subject>.>, and the jobs' subjects   replay
//
// and to subscribe to an inbox.
package deadletter
