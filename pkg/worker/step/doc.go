// Package step divides a job into steps whose results are kept. When a job is attempted
// again, after an error, a shutdown or a crash, what was done is not done again:
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
// A result that [Run] has returned is stored by the server: a process that is killed the
// moment after runs the step no more, nor does any other.
//
// A step has one result. Once it is recorded, every attempt gets it and none replaces it.
//
// An attempt that was overtaken records nothing. A worker that was frozen or cut off while
// its job was given to another gets [ErrFenced] from the server with its next write, its
// context ends, and the worker leaves the job to the other.
//
// What a step does happens at least once: a process that dies after fn did its work and
// before Run returned runs it again. Make fn idempotent, for example by a key made of the
// job's ID and the step's name. Two attempts may run the same fn at the same time, until
// one of them records it.
//
// Steps belong to the job's message, not to its ID: a job that is inserted again under its
// ID is another job, and never sees steps of the first. A dead letter that is replayed goes
// on after the steps that were recorded: package deadletter gives its message the header
// [worker.HeaderResume], unless it is told to restart the job or its payload was edited.
//
// # What is stored
//
// One record in the worker's bucket (see worker.Config.StepBucket) holds all steps of a
// job, at steps.<stream>.<consumer>.<sequence>-<time>. Each write replaces the revision
// that its writer knows, so the record is its own fence. Results of more than 4 KB are
// compressed; what is still larger goes into messages of its own, also above the server's
// max_payload, up to [MaxResult].
//
// The record goes worker.Config.StepTTL after its last write: a job that is put off for
// longer starts over. When the job was completed in its first attempt the record goes after
// a minute, which is for deliveries that are on their way; after more attempts it stays, to
// hold off any that still runs somewhere.
//
// Beside those of package worker it takes the permissions to publish to
//
//	$KV.<step bucket>.steps.>                   record
//	$JS.API.STREAM.MSG.GET.KV_<step bucket>     attempts after the first; lost answers
//	$JS.API.STREAM.INFO.KV_<step bucket>        check, when Config.StepBucket is set
//
// # Costs
//
// A step costs one write. A later attempt reads the record and writes it once, at its first
// step. A completed job costs one write more, for which the job does not wait. A job without steps
// costs nothing.
package step
