// Package deadletter lists the jobs that were given up, and runs them again.
//
//	store, err := deadletter.Open(ctx, js, deadletter.Config{})
//	...
//	overview, err := store.Survey(ctx, deadletter.Filter{Since: yesterday}, deadletter.SurveyOptions{})
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
// A replay publishes the job to its subject and removes the letter. The job has its former headers, without those that the server reads
// ("Nats-...", except Nats-TTL). It keeps its ID (worker.HeaderID), so that everything that is keyed by the ID resumes. Unless its payload
// was edited, it goes on after the steps whose results are recorded (package step, worker.HeaderResume). worker.HeaderReplay counts its
// replays, and worker.HeaderReplayOf names the letter. Its message ID is new and belongs to the letter, so that deduplication never drops
// it.
//
// The letter is removed only after the server has stored the job: an interrupted replay loses nothing.
//
// A replay that is interrupted after it has removed letters may leave the records of up to 16 letters behind. The next Replay or Discard
// whose filter includes their time removes them.
//
// No letter is replayed twice. Before a replay publishes the job, it writes a record beside the letters, which only one of
// several replays can do. A later replay, now or after a month, finds out whether an interrupted one published the job. If it did, the job
// is still in its stream, or its worker has recorded that before it removed the job. Otherwise the job was never published, and is
// published now, under the same message ID. The worker's record costs a replayed job one round trip. If the replay was not interrupted the
// server refuses this record, so nothing is left.
//
// Programs without a worker record nothing about their jobs (worker.DeadLetter.Worker is empty). An interrupted replay of
// such a job is repeated within the duplicate window of the job's stream. After that, the letter of a job that is not in its stream stays,
// with [ErrUnsettled]: replay it with ReplayOptions.Again, which may run the job twice, or discard it.
//
// A job may run twice in two cases. A process is suspended right before it publishes the job, for longer than the duplicate
// window, while another process finishes the replay. Or the worker cannot write to the dead letter stream while it settles a
// job whose replay was interrupted (it logs worker.replay_unmarked).
//
// A letter whose job its stream would not take stays with an error that says what to do, the same in a dry run: the stream is gone or does
// not take the subject, the job is too large with the headers of a replay, or its subject, ID or headers cannot be sent again as they were.
//
// Of several calls that replay or discard one letter at the same time, one counts it. The others get [ErrNotFound], or [ErrSkip] for a
// discard whose letter is being replayed: no job runs whose letter was counted as discarded.
//
// The replay of a unique job (header Job-Keep) is published under the condition of its insertion. When another job has the key by then,
// the letter stays, with a [TakenError].
//
// # Stranded messages
//
// A worker of this project leaves no message stranded. Other consumers do, at their MaxDeliver. The server then publishes one advisory,
// which the dead letter stream stores when its subjects include
//
//	$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>
//	$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>
//
// These advisories are entries of [KindStranded], with the message itself while its stream has it. The exception are advisories that a
// message left its stream while the leader of a consumer waited for the acknowledgement: after a change of leader, the leader may not know
// of an acknowledgement. In a work queue without MaxAge that refuses new messages when it is full, the message was acknowledged, deleted
// on purpose, or its own TTL ended. In other streams it may also have been dropped unworked. The advisory does not tell, and the message
// is gone, so there it remains an entry, with [ErrGone]. Each advisory of that kind costs two round trips where letters are listed or
// grouped. The server may publish more than one advisory about a message. A replay of a message from a work queue first makes a dead
// letter of it: the letter is stored, then the message is removed from its stream. So nothing is lost, and a stream that takes each
// subject once takes the message again. Do not replay a message that its consumer may still deliver because its MaxDeliver was raised.
// Messages of streams that are not work queues are not replayed: they belong to all consumers there.
//
// [Store.Stranded] finds messages that no consumer takes, and messages that their consumer has passed.
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
//	<dead subject>.>                           replay, discard
//	the jobs' subjects                         replay
//
// and to subscribe to an inbox.
package deadletter
