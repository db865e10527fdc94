package worker

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// recordBucket returns a bucket for records, and a job.
func recordBucket(t *testing.T, srv *natsrun.Server) (*kvrecord.Stream, place) {
	t.Helper()

	_, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, AllowMsgTTL: true, MaxMsgsPerSubject: 1,
	})))

	records := check.Must(kvrecord.New(kvrecord.Config{JetStream: js}))(t)
	t.Cleanup(records.Close)
	return records.Bucket("jobs"), place{stream: "JOBS", consumer: "cook", sequence: 7, stored: time.Unix(0, 1_700_000_000_000_000_001)}
}

func assertCount(t *testing.T, bucket *kvrecord.Stream, job place, want int) {
	t.Helper()

	got, err := readUncounted(t.Context(), bucket, job)
	check.That(t, err == nil && got.Uncounted == want, "%+v, %v; want %d uncounted", got, err, want)
}

func TestEachUncountedDeliveryIsRecordedOnce(t *testing.T) {
	t.Parallel()

	bucket, job := recordBucket(t, natstest.Server(t))
	assertCount(t, bucket, job, 0)

	var group sync.WaitGroup
	for range 20 { // many writers
		group.Go(func() {
			check.ErrorIs(t, addUncounted(t.Context(), bucket, job, nil, uncounted{Last: 1, Uncounted: 1}), nil)
		})
	}

	group.Wait()

	for _, delivery := range []int{3, 2, 3} { // repeated, and late
		check.OK(t, addUncounted(t.Context(), bucket, job, nil, uncounted{Last: delivery, Uncounted: 1}))
	}

	assertCount(t, bucket, job, 2)

	reborn := job
	reborn.stored = job.stored.Add(1)
	assertCount(t, bucket, reborn, 0)

	check.OK(t, addUncounted(t.Context(), bucket, reborn, nil, uncounted{Last: 1, Uncounted: 1}))

	assertCount(t, bucket, reborn, 1)
}

func TestUncountedDeliveriesOutliveTheDelayByAWeek(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const delay, week = 24 * time.Hour, 7 * 24 * time.Hour

		bucket, job := recordBucket(t, srv)

		check.OK(t, addUncounted(t.Context(), bucket, job, nil, uncounted{Last: 1, Uncounted: 1, Delay: delay}))

		natstest.Pass(delay + week - time.Minute)
		assertCount(t, bucket, job, 1)
		natstest.Pass(2 * time.Minute)
		assertCount(t, bucket, job, 0)
	}, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.PingInterval = 24 * time.Hour }) // a month of pings takes long
	})
}
