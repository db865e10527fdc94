// Package crash runs parts of a test as processes that the test kills, pauses and starts again.
//
// A role is the work of such a process. The test binary runs itself in the role, with a task:
//
//	var worker = crash.Role[task]{Name: "worker", Run: work}
//
//	func TestMain(m *testing.M) { crash.Main(m, 4, worker) }
//
//	func TestWorkerIsKilled(t *testing.T) {
//		t.Parallel()
//
//		srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
//		p := worker.Start(t, task{URL: srv.URL()})
//		p.Await("^started ")
//		p.Kill()
//		...
//	}
//
// The standard error of a process is in the log of its test, and when the test fails, so is the end of its standard
// output. A process does not outlive its test. No method sleeps. A method that waits gives up after [Patience].
//
// [StartServer] and [ThreeServers] run NATS servers that can be killed in the same way. [NewNetwork] cuts a process off from its
// servers. [Random] makes the choices of a run repeatable: it prints their seed.
//
// # Faults, effects, judge
//
// A [Log] takes down what the processes do, and survives them: an id is [Started], has its [Effect] and is [Recorded]. [Inject] injects
// faults, those of a [Group] of processes and of [Servers], and writes them into the same log. When everything has come to an end,
// [Log.Judge] compares the log with the ids that were accepted:
//
//	log := crash.NewLog(t)
//	group := crash.NewGroup(t, log, on.URL, 3, func(name, servers string) *crash.Process {
//		return worker.Start(t, task{Log: log.Path(), Name: name, URL: servers})
//	})
//	faults := slices.Concat(group.Faults(2*ackWait), on.Faults(log, 2*ackWait, "JOBS"))
//	ctx, cancel := context.WithDeadline(t.Context(), until)
//	defer cancel()
//	check.OK(t, crash.Inject(ctx, r, time.Second, faults...)) // jobs are inserted in the meantime
//	...                                                       // all jobs come to an end
//	group.Stop()
//	result := check.Must(log.Judge(maps.Keys(inserted), nil))(t)
//	check.ErrorIs(t, result.Err(), nil)
//
// Lost are ids without an effect, repeated those whose effect was repeated by a process that started it after it had been recorded, out of
// order those that came before the id that goes before them. A process that started before the record may repeat an effect: those are
// counted.
//
// # The proof
//
// A package whose promises the public proof tests has a TestProof that calls [Proof] with rounds on three servers. It is skipped
// without -for:
//
//	func TestProof(t *testing.T) { crash.Proof(t, "jobs", prove) }
//
//	go test ./crash -run '^TestProof$' -timeout 0 -args -for 10m
package crash
