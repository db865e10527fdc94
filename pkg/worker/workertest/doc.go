// Package workertest tests what runs on pkg/worker: one handler with [Run], a whole service
// with [Conform]. It starts NATS servers of its own, inside the test.
//
// # One job
//
//	func TestNoReceiver(t *testing.T) {
//		t.Parallel()
//
//		r := workertest.Run(t, worker.Policy{MaxAttempts: 3}, send, Mail{To: ""})
//		if r.Outcome != worker.OutcomeDead || r.Dead.Reason != worker.ReasonCancelled {
//			t.Errorf("a mail to nobody is %s, want dead: %v", r.Outcome, r.Err)
//		}
//	}
//
// It is the real thing: a stream, a worker, an acknowledgement; only that nothing is waited
// for. Under fake time a handler may take as long as it likes:
//
//	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
//		r := workertest.Run(t, policy, send, Mail{To: "ada"}, func(o *workertest.Options) { o.Server = srv })
//		...
//	})
//
// # A service
//
// A service is a function that works jobs until its context ends. In the test its effects
// go to a recorder, which stands for whatever is on the far side. This one passes:
//
//	func serve(ctx context.Context, env workertest.Env) error {
//		w, err := worker.New(env.JS, worker.Config{
//			AckWait: env.AckWait, AutoCreate: true, Consumer: "mailer", Logger: env.Logger, Stream: "JOBS",
//		})
//		if err != nil {
//			return err
//		}
//
//		err = worker.Handle(w, "jobs.mail.>", worker.Policy{}, func(ctx context.Context, job *worker.Job[Mail]) error {
//			return env.Recorder.RecordOnce(ctx, job.ID) // the far side deduplicates by the job's ID
//		})
//		if err != nil {
//			return err
//		}
//
//		return w.Run(ctx)
//	}
//
//	func TestMailer(t *testing.T) {
//		workertest.Conform(t, workertest.Suite{
//			Job: func(n int) *nats.Msg {
//				return &nats.Msg{Subject: fmt.Sprintf("jobs.mail.u%d", n), Data: []byte(`{"to":"ada"}`)}
//			},
//			Service: serve,
//		})
//	}
//
// With Record in place of RecordOnce, a far side that takes every mail it is given, it fails:
//
//	--- FAIL: TestMailer/redelivery_after_SIGKILL
//	    job conform-3 has 2 effects, want 1
//
// A service whose effects are somewhere else, in a database for instance, calls
// Recorder.Reach where it is about to leave one, so that the suite can kill it there, and
// counts them in Suite.Effects.
package workertest
