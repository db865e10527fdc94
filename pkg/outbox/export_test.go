package outbox

import "time"

// The points that a relay passes.
const (
	PointClaimed, PointAcknowledged = pointClaimed, pointAcknowledged
	PointMarked, PointCommitted     = pointMarked, pointCommitted
)

// Passing returns a configuration whose relay calls passed at each point.
func (cfg Config) Passing(passed func(point string)) Config {
	cfg.passed = passed
	return cfg
}

// Answering returns a configuration with another bound of the answers of the database.
func (cfg Config) Answering(within time.Duration) Config {
	cfg.answer = within
	return cfg
}
