// Package step divides a job into steps whose results are kept. An attempt that follows an error, a shutdown or a crash does
// not repeat the steps whose results are recorded:
//
//	func (s *Importer) Handle(ctx context.Context, job *worker.Job[Import]) error {
//		text, err := step.Run(ctx, job, "transcript", func(ctx context.Context) (string, error) {
//			return s.transcribe(ctx, job.Args.URL)
//		})
//		if err != nil {
//			return err
//		}
//
//		recipe, err := step.Run(ctx, job, "extract", func(ctx context.Context) (Recipe, error) {
//			return s.extract(ctx, text)
//		})
//		if err != nil {
//			return err
//		}
//
//		return step.Do(ctx, job, "create", func(ctx context.Context) error {
//			return s.create(ctx, job.ID, recipe)
//		})
//	}
//
// # Guarantees
//
// A result that [Run] has returned is stored by the server: no process begins the step again, even if this one is killed the moment after.
// A worker whose job may have been given to another, because it was stopped or cut off, a leader was away or the consumer was made again,
// checks before each further step: it reads the job at the leader of its stream, and the record. It notices within AckWait/3 that a
// consumer was made again. A step that begins earlier, or another worker's record between the check and the step's effect, can lead to a
// repeated step. So can the answer of a deposed leader.
//
// A step has one result. Once a result is recorded, every attempt gets it and no attempt replaces it.
//
// An overtaken attempt records nothing. When a worker was paused or cut off while its job was given to another worker, the server refuses
// its next write: the step returns [ErrFenced], the handler's context ends, and the worker leaves the job to the other worker.
//
// The effects of a step happen at least once: when a process dies after fn did its work and before Run returned, the next
// attempt runs fn again. Make fn idempotent, for example by a key made of the job's ID and the step's name. Two attempts may
// run the same fn at the same time, until one of them records its result.
//
// Steps belong to the job's message, not to its ID: a job that is inserted again under its ID is another job, and has none
// of the steps of the first. A replayed dead letter continues after the recorded steps: package deadletter gives its message
// the header [worker.HeaderResume], unless the replay restarts the job or its payload was edited.
//
// # Storage
//
// One record in the worker's bucket (see worker.Config.StepBucket) holds all steps of a job, at
// steps.<stream>.<consumer>.<sequence>-<time>. Each write replaces the revision that its writer knows, so the record is its
// own fence. Results of more than 4 KB are compressed. A result that is still larger goes into separate messages, of up to [MaxResult]
// in all, even above the server's max_payload.
//
// The server removes the record worker.Config.StepTTL after its last write: a job that is put off for longer starts over.
// When the job completed in its first attempt, the record is removed after a minute, for deliveries that are still under way. After more
// attempts it stays, to fence off an attempt that may still run.
//
// In addition to the permissions of package worker, steps need those to publish to
//
//	$KV.<step bucket>.steps.>                   record
//	$JS.API.STREAM.MSG.GET.KV_<step bucket>     attempts after the first; lost answers; jobs in doubt
//	$JS.API.STREAM.INFO.KV_<step bucket>        check, when Config.StepBucket is set
//
// # Costs
//
// A step costs one write. A later attempt reads the record and writes it once, at its first
// step. If another worker may have the job, each step costs two more reads. A completed job costs one more write, for which the job does
// not wait. A job without steps costs nothing.
package step
