package step

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// readTimeout bounds List beside its context.
const readTimeout = 2 * time.Second

// Recorded is a step whose result is recorded. Its Value is nil when it has more than 4 KB, and is not empty.
type Recorded = journal.Step

// List returns the recorded steps of a job of a stream, in the order in which they ended, for display: the record may have changed
// since. bucket is the worker.Config.StepBucket of its worker. A job without a consumer, steps or a record has none. One round trip.
func List(ctx context.Context, js jetstream.JetStream, bucket, stream string, job worker.StoredJob) ([]Recorded, error) {
	a := journal.Attempt{
		Consumer: job.Consumer, Job: job.ID, Resume: job.Header.Get(worker.HeaderResume), Sequence: job.Sequence, Stored: job.Since,
		Stream: stream,
	}
	if l := job.Letter; l != nil {
		a.Consumer, a.Resume = l.Consumer, l.Resume()
	}
	if a.Consumer == "" {
		return nil, nil
	}
	if !journal.ValidKey(a.Resume) {
		a.Resume = ""
	}
	steps, err := journal.New(journal.Config{API: jsapi.New(js, readTimeout), Bucket: bucket, Conn: js.Conn()}).Read(ctx, a)
	if jsapi.IsNoStream(err) {
		return nil, nil // no job of it has had steps
	}
	return steps, err
}
