// Package workertest tests handlers and services of pkg/worker: [Run] tests one handler, [Conform] a whole service. It
// starts separate NATS servers inside the test.
//
// # One job
//
//	func TestNoReceiver(t *testing.T) {
//		t.Parallel()
//
//		r := workertest.Run(t, worker.Policy{MaxAttempts: 3}, send, Mail{To: ""})
//		if r.Outcome != worker.OutcomeDead || r.Dead.Reason != worker.ReasonDiscarded {
//			t.Errorf("a mail to nobody is %s, want dead: %v", r.Outcome, r.Err)
//		}
//	}
//
// Run uses a real stream, a real worker and real acknowledgements, but waits for no retry. Under fake time a handler may take any time:
//
//	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
//		r := workertest.Run(t, policy, send, Mail{To: "ada"}, func(o *workertest.Options) { o.Server = srv })
//		...
//	})
//
// # A service
//
// A service is a function that works jobs until its context ends. In the test its effects go to a recorder, in place of the system that
// the service calls. This service passes:
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
//			return env.Recorder.RecordOnce(ctx, job.ID) // the remote service deduplicates by the job's ID
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
// With Record instead of RecordOnce, as with a mail server that delivers every mail that it receives, it fails:
//
//	--- FAIL: TestMailer/redelivery_after_SIGKILL
//	    job conform-3 has 2 effects, want 1
//
// A service whose effects are elsewhere, in a database for instance, calls Recorder.Reach right before an effect, so that
// the suite can kill the service there. Suite.Effects then counts the effects.
package workertest
