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
// # Guarantees
//
// Delivery is at least once. A job leaves the stream only after its handler returned nil,
// or after the server stored its dead letter; both are confirmed by the server. It runs
// again after a crash between the handler's last effect and that confirmation, so handlers
// must be idempotent. Job.ID is the same in every attempt and is what to dedupe on.
//
// A worker never holds more jobs than it has slots, and tells the server every AckWait/3
// that they are being worked. So a job of any length is not started twice, and the job of
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
// cannot be published the job stays in its stream and is tried again.
//
// A message that cannot be decoded goes to the dead letters by itself and holds up nobody.
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
// Durability beyond what the server is set to: by default it syncs every two minutes.
//
// # On the server
//
// Run needs a durable pull consumer (explicit acks, Config.AckWait, no BackOff, unlimited
// MaxDeliver and MaxAckPending, the handlers' patterns as its filters), the bucket, and a
// stream that takes <DeadSubject>.<stream>.>. It checks them, and makes them only with
// Config.AutoCreate. BackOff is refused since it distorts delayed retries, a limit on
// MaxDeliver since it would strand messages in a work queue, one on MaxAckPending since
// jobs that wait for a retry would block new ones.
//
// The permissions it needs, to publish:
//
//	$JS.API.CONSUMER.INFO.<stream>.<consumer>       check
//	$JS.API.STREAM.INFO.KV_<bucket>                 check
//	$JS.API.STREAM.NAMES                            check
//	$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>   pull
//	$JS.ACK.<stream>.<consumer>.>                   acknowledge, heartbeat
//	$JS.API.STREAM.MSG.GET.KV_<bucket>              attempts of a redelivered job
//	$KV.<bucket>.excused.>                          snooze, hand back
//	<dead subject>.<stream>.>                       dead letters
//
// and to subscribe to its inbox.
//
// # Costs
//
// A job that completes costs its delivery, one confirmed acknowledgement and a share of a
// pull request. With insertion and server it takes about a fifth more processor time than
// the same done with nats.go alone (70 to 80 µs against 60 to 65, see BenchmarkJobs in the
// test module). A redelivered job costs one read more, a snooze or a hand-back a read and
// a write. An idle worker asks once a second, and stops within that time.
package worker
