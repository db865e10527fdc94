package jobmsg

// HeaderReplayRecord is the header of a replayed job with the sequence of the replay's record in the dead letter stream.
const HeaderReplayRecord = "Job-Replay-Record"

// HeaderReplayState is the header with the state of a replay, in the replay's record: a message on
// <DeadSubject>.<stream>.<TokenReplay>.<dead letter's sequence>.
const HeaderReplayState = "Dead-Replay"

// Values of HeaderReplayState.
const (
	// ReplayBegun is written before the job is published again.
	ReplayBegun = "begun"

	// ReplayWorked is written by the worker, before it takes the replayed job out of its stream.
	ReplayWorked = "worked"
)

// Tokens that follow <DeadSubject>.<stream> in the subjects of messages that are not dead letters themselves. No subject of a job begins
// with a '$'.
const (
	// TokenPart stands before the parts of a large dead letter: <job's sequence>.<number>.
	TokenPart = "$part"

	// TokenReplay stands before the record of a replay: <dead letter's sequence>.
	TokenReplay = "$replay"
)
