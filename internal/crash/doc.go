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
package crash
