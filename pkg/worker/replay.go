package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers of a job that was replayed from the dead letters.
const (
	// HeaderReplay holds how often the job has been replayed, 1 for the first time.
	HeaderReplay = "Job-Replay"

	// HeaderReplayOf holds the letter: "<dead letter stream>:<sequence>".
	HeaderReplayOf = "Job-Replay-Of"

	// HeaderReplayRecord holds the sequence of the record of the replay in the dead letter
	// stream.
	HeaderReplayRecord = "Job-Replay-Record"
)

// HeaderReplayState says what a record of a replay, a message on
// <DeadSubject>.<stream>.<TokenReplay>.<letter's sequence>, stands for.
const HeaderReplayState = "Dead-Replay"

// Values of HeaderReplayState.
const (
	// ReplayBegun is written before the job is published again.
	ReplayBegun = "begun"

	// ReplayWorked is written by the worker, before it takes the replayed job out of its
	// stream.
	ReplayWorked = "worked"
)

// markWorked notes, before a replayed job leaves its stream, that it has been worked. Were
// the replay interrupted between publishing the job and removing its letter, nothing else
// would tell one that takes it up later that the job has been there.
//
// The server accepts the note only while the record of the replay lies there, and it is
// removed together with the letter: so as a rule, this is refused and leaves nothing.
func (w *Worker) markWorked(d *delivery) {
	record, err := strconv.ParseUint(d.msg.Header.Get(HeaderReplayRecord), 10, 64)
	if err != nil || record == 0 {
		return
	}

	_, letter, _ := strings.Cut(d.msg.Header.Get(HeaderReplayOf), ":")
	if _, err = strconv.ParseUint(letter, 10, 64); err != nil {
		return
	}

	msg := nats.NewMsg(fmt.Sprintf("%s.%s.%s.%s", w.cfg.DeadSubject, d.info.Stream, TokenReplay, letter))
	msg.Header.Set(HeaderReplayState, ReplayWorked)

	const tries = 2

	for range tries {
		ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
		_, err = w.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(record))

		cancel()

		var refused *jetstream.APIError
		if err == nil || errors.As(err, &refused) {
			return
		}
	}

	w.log.Warn(EventReplayUnmarked, append(d.attrs(), "error", w.denial(err))...)
}
