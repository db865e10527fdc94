// Package worker runs jobs from a JetStream stream: typed handlers, bounded concurrency,
// retries with backoff, dead letters, and a shutdown that loses nothing. A job is any
// message of the stream; whoever can publish can enqueue.
//
//	w, err := worker.New(js, worker.Config{Stream: "JOBS", Consumer: "mailer"})
//	...
//	err = worker.Handle(w, "jobs.mail.>", worker.Policy{MaxAttempts: 5},
//		func(ctx context.Context, job *worker.Job[Mail]) error {
//			return send(ctx, job.Args)
//		})
//	...
//	err = w.Run(ctx) // until ctx ends, then gracefully
//
// Jobs are inserted by any publisher, or by a [Client]:
//
//	receipt, err := client.Insert(ctx, worker.NewJob{
//		Args: Mail{To: "ada"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada", Keep: time.Hour},
//	})
//	fmt.Println(receipt.Duplicate, receipt.State)
//
// [Type] lets those who insert jobs and those who handle them share one definition.
//
// Beside it are the packages step (results within a job that survive a crash), deadletter
// (jobs that were given up, looked at and run again), workertest (one job in a test, and a
// conformance suite for services) and token (ids in subjects).
//
// # Unique, delayed and periodic jobs
//
// A unique job is refused by the server, in the write itself, while anything of its key is
// scheduled, queued, running, or recorded as done and kept. The key is what follows the
// first token of the subject. The worker records the end of a unique job before it
// acknowledges it, so the key is never free in between, and looks for that record before it
// runs such a job again. A dead job holds its key only with Unique.HoldDead; Client.Free
// lets go of a done or dead one in one call, Client.Cancel takes away a live one, and
// Client.Replace puts another in its place.
//
// Delayed jobs are schedules of the server: never early, p50 130 ms and at most 250 ms
// late. So are periodic ones ([Client.Schedule]): no process has to be there for them.
//
// # Priorities
//
// Policy.Priority divides the slots of a worker when jobs wait for them: each priority gets
// four times the starts of the one below it, so nothing starves, and a priority without jobs
// leaves its slots to the others. A server tells the jobs of one stream apart by consumers
// alone, so each priority has one ([ConsumerOf]), and jobs of two priorities need subjects
// of their own; that of the normal priority has the name it has without priorities. An idle
// worker starts a job of any priority at once. When the jobs of others take every slot, the
// next one is looked for in 5 ms or when a slot becomes free, whichever is later. A job that
// a worker was given in the moment when its last slot was taken waits there for 250 ms at
// most, and is handed back, which uses no attempt.
//
// # Batches
//
// [HandleBatch] works many jobs in one call. It starts when BatchPolicy.Size jobs are there or
// the first has waited for BatchPolicy.Wait. Each job keeps its own slot, heartbeats,
// attempts, policy and dead letter; nil completes all, an error fails all, and a
// [*BatchError] gives each an outcome of its own. A job that waits for its batch is handed
// back when the worker stops. Jobs that fail come again in other batches: nothing of a batch
// is recorded at the server.
//
// # Limits
//
// Policy.Limits hold over all workers that share a bucket: how many jobs run at once and how
// many start in a time, for all jobs or for each key. See [Limit] for what waits where. Jobs
// that wait use no slot and no attempt, and a flood of one key holds up no other.
//
// Handlers whose contexts are live are never more than Limit.Concurrency, whatever is
// killed, frozen, cut off or restarted: a permit's lease ends for its holder, by its own
// clock, before others may take it, and they take it by ending the lease with a write that
// the server accepts only if it was not renewed. That leans on clocks that run at the same
// speed, within a tenth, on a server that does not lose what it has confirmed, and on
// nobody deleting the records (limits.> in the bucket); a handler that goes on after its
// context has ended is not counted. The permits of a worker that died are free an AckWait
// after somebody who waits has looked for it, within about two AckWaits.
//
// A worker that cannot reach the server for most of an AckWait loses its permits, and its
// limited jobs their contexts, with a [*LimitLostError]; they are handed back. A record that
// cannot be decoded stops the jobs of its key: each is put off for 5 seconds again and again,
// without using an attempt, and reported as EventLimitUnreadable, until the record is deleted.
//
// Jobs that are given back wait in the consumer's ack-pending set, like retries, so there
// must be no MaxAckPending; the server keeps each in memory, and brings it back after a
// minute at most.
//
// # Guarantees
//
// Delivery is at least once. A job leaves the stream only after its handler returned nil,
// or after the server stored its dead letter; both are confirmed by the server. It runs
// again after a crash between the handler's last effect and that confirmation, so handlers
// must be idempotent. Job.ID is the same in every attempt and is what to dedupe on.
//
// A worker never holds more jobs than it has slots, beside Config.MaxWaiting that wait for
// a limit, and tells the server every AckWait/3 that they are being worked. So a job of any length is not started twice, and the job of
// a killed worker starts elsewhere within two AckWaits (of 5 s by default), as a rule
// after two thirds of one to one.
//
// Attempts are counted here, as deliveries minus those that a record in the bucket excuses:
//
//	handler returned an error, panicked, timed out, called runtime.Goexit    an attempt
//	its process was killed, or lost the server for longer than AckWait       an attempt
//	handler returned Snooze                                                  none
//	the worker was shut down in mid-job, or before the job began             none
//	the message was delivered to a worker that was already working it        none
//
// Counting the crash is what lets a job that kills its process end in the dead letters.
//
// A dead letter is published once for each job: a repetition, after a lost answer or a
// crash, has the same message ID and falls under the stream's duplicate window. When it
// cannot be published the job stays in its stream and is tried again. What has to follow from
// the end of a job, such as another job, is Policy.Bury's: it is called before.
//
// A message that cannot be decoded goes to the dead letters by itself and holds up nobody.
//
// What a job did can be kept in steps, see package step: their results survive the process,
// and an attempt that was overtaken cannot record any.
//
// Run survives restarts of the server, changes of leader, lost connections and a consumer
// that is deleted, by itself and with bounded backoff.
//
// # What is not guaranteed
//
// Order: jobs of one subject may run at the same time and finish in any order.
//
// That a job runs in one place only. A worker that is cut off from the server goes on with
// its job while the server, after AckWait, gives it to another; the acknowledgements of
// both are accepted. Fence effects by a revision, not by the acknowledgement.
//
// Exact attempts when the server loses its own count: when the consumer is deleted, or in
// the last instant before a crash of a server without replicas. The count then starts
// lower, never higher. A delivery whose excuse cannot be written, because the bucket is
// away, uses an attempt after all; it is logged. So does a message that was on its way to
// a worker when their connection broke.
//
// The acknowledgement of a job whose consumer was deleted and made again is confirmed only
// once the new consumer has delivered it; until then its outcome is unknown and it may run
// again.
//
// That the message of an acknowledged job is gone at once. With replicas it goes a moment after
// the confirmation. A server without replicas that shuts down may confirm the last
// acknowledgement of a consumer and keep the message, which no consumer delivers from then on.
// The worker repeats its last acknowledgements when it has the server back, and the message
// goes. If the worker ends before that, the job does not run again, but its message stays and
// holds its subject and its key until it is deleted: Store.Stranded of package deadletter
// finds it.
//
// Durability beyond what the server is set to: by default it syncs every two minutes.
//
// # On the server
//
// Run needs a durable pull consumer for each priority that has a handler (explicit acks, Config.AckWait, no BackOff, unlimited
// MaxDeliver and MaxAckPending, the patterns of its handlers as filters), the bucket, and a
// stream that takes <DeadSubject>.<stream>.>. It checks them, and makes them only with
// Config.AutoCreate. BackOff is refused since it distorts delayed retries, a limit on
// MaxDeliver since it would strand messages in a work queue, one on MaxAckPending since
// jobs that wait for a retry would block new ones. A work queue refuses two consumers for
// one subject, so when the priority of a handler changes, its former consumer has to give up
// the pattern first. AutoCreate does that, but deletes no consumer that is left over.
//
// A consumer that gets a new pattern by an update never delivers the messages of that pattern
// which it has passed. In a work queue one server keeps them for ever, and three delete them.
// So before a new pattern is added, either no job of it may lie in the stream, or the consumer
// has to be deleted and made again. AutoCreate makes it again: jobs that run are then
// delivered once more, those that wait for a retry start at once, and attempts are counted
// from one. In a stream that is no work queue it updates, since a consumer that was made again
// would deliver all that was worked.
//
// The permissions it needs, to publish, <consumer> being each of them:
//
//	$JS.API.CONSUMER.INFO.<stream>.<consumer>       check
//	$JS.API.STREAM.INFO.KV_<bucket>                 check
//	$JS.API.STREAM.NAMES                            check
//	$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>   pull
//	$JS.ACK.<stream>.<consumer>.>                   acknowledge, heartbeat
//	$JS.API.STREAM.MSG.GET.KV_<bucket>              attempts of a redelivered job
//	$KV.<bucket>.excused.>                          snooze, hand back
//	$KV.<limit bucket>.limits.>                     limits; to subscribe as well
//	$JS.API.STREAM.MSG.GET.KV_<limit bucket>        limits
//	$JS.API.STREAM.INFO.KV_<limit bucket>           check, with limits
//	<dead subject>.<stream>.>                       dead letters
//	$JS.API.STREAM.MSG.GET.<stream>                 unique jobs
//	$JS.API.STREAM.MSG.DELETE.<stream>              jobs that Client.Replace inserted
//	<first token>-done.>                            unique jobs
//	$KV.<bucket>.progress.<stream>.>                jobs that run for long, Job.Progress
//	$KV.<step bucket>.steps.>                       steps
//	$JS.API.STREAM.MSG.GET.KV_<step bucket>         steps of later attempts
//	$JS.API.STREAM.INFO.KV_<step bucket>            check, when Config.StepBucket is set
//
// and to subscribe to its inbox. A [Client] needs to publish to <first token>.>, and to
// <first token>-later.> and <first token>-done.> for delayed and unique jobs, with
// $JS.API.STREAM.INFO, $JS.API.STREAM.MSG.GET and $JS.API.STREAM.MSG.DELETE of the stream.
//
// # Costs
//
// A job that completes costs its delivery, one confirmed acknowledgement and a share of a
// pull request. With insertion and server that takes 65 to 67 µs of processor time where
// nats.go alone takes 55 to 65 for the same; a unique job that a Client inserted takes 74 to
// 80, one whose completion is kept 96 to 112, where nats.go alone takes 89 to 91 for the same
// writes (BenchmarkJobs in the test module, and bench/jobs; two CPUs).
// A redelivered job costs one read more, a snooze or a hand-back a read and a write. An
// idle worker asks once a second for each priority, and stops within that time. With three
// priorities a job costs what it costs with one.
//
// A job with limits shares its writes with others of its key in the worker: two where it is
// alone, a third of one where hundreds wait for the same key (BenchmarkLimits). One that is
// given back costs another delivery and a write.
//
// An insert is one round trip, a duplicate one more. Unique.Keep costs a write for each
// job, Replace a write at the start of a job and one at its end. A job that runs for longer
// than AckWait/3 is recorded as running, in one write; a unique one then costs a read at
// each heartbeat. A step is one write. A unique job, or one with steps, that was stored
// before the worker connected costs one read more, since a server that crashed may have
// forgotten that it was delivered. A replayed job costs one round trip more.
package worker
