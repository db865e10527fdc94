package imports

import (
	"context"
	"log/slog"
)

// Event is the name of a log event: the attribute "event" of a log line.
type Event string

// The log events, and what they carry beside job_id. None carries text of a source.
const (
	EventStarted     Event = "import_started"     // url, attempt, run
	EventSkipped     Event = "import_skipped"     // status: the job has ended already
	EventTranscript  Event = "transcript_fetched" // source_id, segments, elapsed, shared
	EventExtracted   Event = "recipe_extracted"   // extractor, ingredients, steps, elapsed, shared
	EventCreated     Event = "recipe_created"     // recipe_id, elapsed
	EventReady       Event = "import_ready"       // recipe_id, elapsed
	EventFailed      Event = "import_failed"      // code, step, attempt, error
	EventRetry       Event = "operation_retried"  // operation, attempt, pause, error
	EventPutOff      Event = "import_put_off"     // code, step, attempt, error, and waiting_for: another attempt follows
	EventNoProgress  Event = "progress_unread"    // error: the progress of a job that runs is left out
	EventInterrupted Event = "import_interrupted" // the worker stops, or lost the job
	EventOutage      Event = "outage_began"       // side, refused, error, without a job_id: all jobs wait for it
	EventBack        Event = "outage_ended"       // side, without a job_id
	EventUntold      Event = "status_untold"      // status, error: the store has not received the status, and gets it later
)

func (s *Service) log(ctx context.Context, level slog.Level, event Event, jobID string, attrs ...slog.Attr) {
	if !s.logger.Enabled(ctx, level) {
		return
	}
	all := append([]slog.Attr{slog.String("event", string(event)), slog.String("job_id", jobID)}, attrs...)
	s.logger.LogAttrs(ctx, level, string(event), all...) //nolint:sloglint // the name of the event
}

// Points of the life of a job, in order, at which tests have a worker die.
const (
	PointRunning     = "running"           // the job is RUNNING, and the store does not know
	PointBegun       = "begun"             // the store knows
	PointFetching    = "fetching"          // the source is this worker's to fetch
	PointFetched     = "fetched"           // it has answered, and no other process has the answer
	PointShared      = "transcript shared" // all jobs have it, and this one has not noted it
	PointTranscript  = "transcript noted"  // it has
	PointSaved       = "transcript saved"  // the store was given it
	PointExtracting  = "extracting"        // the recipe is this worker's to make
	PointExtracted   = "extracted"         // it is made, and no other process has it
	PointRecipe      = "extract shared"    // all jobs have it, and this one has not noted it
	PointRecipeNoted = "extract noted"     // it has
	PointCreated     = "created"           // the store has the recipe, and the job has not noted it
	PointNoted       = "creation noted"    // it has, and is not READY
	PointReady       = "ready"             // it is, and the store does not know
	PointEnded       = "ended"             // the store knows, and the message is still there
	PointSettled     = "settled"           // the message is gone
)

// passed notifies a test that a job has reached a point.
func (s *Service) passed(point string) {
	if s.cfg.Passed != nil {
		s.cfg.Passed(point)
	}
}
