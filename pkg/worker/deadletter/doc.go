// Package deadletter shows the jobs that were given up, and runs them again.
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
// A [Filter] selects the same letters wherever it is used: what Groups counts is what List
// yields and Replay replays.
//
// # Replay
//
// A replay publishes the job to its subject with its headers, without those that the server
// reads ("Nats-...", but for Nats-TTL), and removes the letter. The job keeps its ID
// (worker.HeaderID), so everything that is keyed by it resumes, and its steps (package step) go on after
// those whose results are recorded, by worker.HeaderResume, unless its payload was edited;
// worker.HeaderReplay counts its replays and worker.HeaderReplayOf names the letter. Its
// message ID is new and belongs to the letter, so that deduplication never swallows it.
//
// The letter is removed only after the server has stored the job: a replay loses nothing,
// whenever it is interrupted.
//
// A replay that is interrupted after it has removed a letter may leave its record behind.
// The next Replay or Discard whose filter reaches it, by time, removes it.
//
// No letter is replayed twice. Before the job is published a record of the replay is
// written beside the letters, which one writer gets; both it and the letter's removal are
// idempotent. A later replay, now or after a month, finds out whether an interrupted one
// published the job: it still lies in its stream, or the worker that worked it has recorded
// that before it took the job out (which costs replayed jobs one round trip,
// and is refused and so leaves nothing when the replay was not interrupted), or else it was
// never published. It is published again only then, under the same message ID.
//
// Jobs of programs that note nothing (worker.DeadLetter.Worker is empty) are published again
// while the duplicate window of their stream tells, and later left alone as [ErrUnsettled]
// when they are not in their stream: replay them with ReplayOptions.Again, which may run
// them twice, or discard them. What is not covered: a replaying process that is suspended
// between its last look at the clock and sending the job, for longer than the duplicate
// window, while another one finishes its replay; and a worker that cannot write to the dead
// letter stream while it settles a job whose replay was interrupted (it logs
// worker.replay_unmarked).
//
// The replay of a unique job (header Job-Keep) carries the condition of its insertion.
// When the key has been taken meanwhile, the letter stays, with a [TakenError].
//
// # Stranded messages
//
// A worker of this project gives no message up. Other consumers do, at their MaxDeliver. The
// server says so once, in an advisory, which the dead letter stream captures when its subjects
// include
//
//	$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>
//	$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>
//
// They are entries of [KindStranded], with the message itself while its stream has it. The
// server may say it more than once of one message. To replay one from a work queue is to
// make it a dead letter first (stored, then taken out of its stream), so nothing is lost
// and a stream that takes each subject once takes it again. Do not do so while its consumer
// may still deliver it, because its MaxDeliver was raised. Messages of other streams are
// left alone: they belong to all consumers there.
//
// [Store.Stranded] finds what no consumer takes in the first place, or has passed.
//
// # On the server
//
// The dead letter stream must not be a work queue. Permissions, to publish:
//
//	$JS.API.STREAM.INFO.*                      look up streams
//	$JS.API.STREAM.MSG.GET.*                   read letters, stranded messages, replayed jobs
//	$JS.API.CONSUMER.CREATE.<dead stream>.>    list
//	$JS.API.CONSUMER.*.<dead stream>.>         list (DELETE, INFO, MSG.NEXT)
//	$JS.API.CONSUMER.LIST.*                    Stranded
//	$JS.API.STREAM.MSG.DELETE.*                replay, discard
//	$JS.API.STREAM.PURGE.<dead stream>         replay
//	<dead subject>.>, and the jobs' subjects   replay
//
// and to subscribe to an inbox.
package deadletter
