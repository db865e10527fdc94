// Package worker runs jobs from a JetStream stream: typed handlers, bounded concurrency, retries with backoff, dead letters,
// and a shutdown that loses nothing. A job is any message of the stream; every publisher can enqueue one.
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
// A [Client] inserts jobs: unique ones, which the server refuses while a job of their key exists, delayed and periodic ones.
//
//	receipt, err := client.Insert(ctx, worker.NewJob{
//		Args: Mail{To: "ada"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada", Keep: time.Hour},
//	})
//	fmt.Println(receipt.Duplicate, receipt.State)
//
// [Policy.Priority] divides the slots of a worker, [Policy.Limits] bound the jobs over all workers, [Policy.Ordered] runs the jobs of one
// subject one after the other.
//
// Related packages are step (results within a job that survive a crash), deadletter (lists jobs that were given up, and runs them again),
// workertest (one job in a test, and a conformance suite for services) and token (ids in subjects).
//
// # Guarantees
//
// Delivery is at least once. A job leaves the stream only after its handler returned nil, or after the server stored its dead
// letter; both are confirmed by the server. It runs again after a crash between the handler's last effect and that
// confirmation, so handlers must be idempotent. Job.ID is the same in every attempt: dedupe by it.
//
// A worker holds no more jobs than it has slots, beside up to Config.MaxWaiting that wait for a limit, and sends a heartbeat for each
// every AckWait/3. So a job of any length is not started twice. The job of a killed worker starts elsewhere within two AckWaits (of 5 s by
// default), as a rule within two thirds of an AckWait to one.
//
// An error, a panic, a timeout and a crash use an attempt; Snooze and a shutdown use none. A job without attempts left goes to the dead
// letters, as does a job that cannot be decoded.
//
// Run survives restarts of the server, changes of leader, lost connections and the deletion of a consumer, by itself and with bounded
// backoff.
//
// README.md in this folder has the rest: the guarantees in full and their exceptions, the requirements on the server, the permissions, and
// the costs in round trips and processor time.
package worker
