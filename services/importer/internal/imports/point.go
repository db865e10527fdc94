package imports

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
