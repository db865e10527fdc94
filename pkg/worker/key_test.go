package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// The tests of this file check the server's property on which keys rest: one write
// decides whether anything of a key exists, under any first token.

// rivals is how many connections want one key at the same time.
const rivals = 6

// everywhere runs a test on one server and on three.
func everywhere(t *testing.T, test func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream))) {
	t.Helper()

	t.Run("one server", func(t *testing.T) {
		t.Parallel()

		srv := natstest.Server(t)
		connect := func() (*nats.Conn, jetstream.JetStream) { return natstest.Connect(t, srv) }
		jobStream(t, connect, 1)
		test(t, connect)
	})
	t.Run("three servers", func(t *testing.T) {
		t.Parallel()

		cluster := natstest.Cluster(t, 3)
		connect := func() (*nats.Conn, jetstream.JetStream) { return natstest.ConnectURL(t, cluster.URLs()) }
		jobStream(t, connect, 3)
		test(t, connect)
	})
}

// jobStream makes the stream that the package recommends.
func jobStream(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream), replicas int) {
	t.Helper()

	_, js := connect()
	cfg := worker.StreamConfig(stream, pattern)
	cfg.Replicas = replicas

	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error { return check.Err(js.CreateOrUpdateStream(ctx, cfg)) }))
}

// write is an insert as any client in any language can do it.
func write(key, id string, due time.Time) *nats.Msg {
	msg := nats.NewMsg("jobs." + key)
	msg.Header.Set("Job-Id", id)
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	msg.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", "*."+key)

	if !due.IsZero() {
		msg.Subject = "jobs-later." + key
		msg.Header.Set("Nats-Schedule", "@at "+due.UTC().Format(time.RFC3339Nano))
		msg.Header.Set("Nats-Schedule-Target", "jobs."+key)
	}
	return msg
}

// refused reports whether the server answered that the key is taken.
func refused(t *testing.T, err error) bool {
	t.Helper()

	var api *jetstream.APIError
	if !errors.As(err, &api) {
		t.Errorf("unexpected: %v", err)
		return false
	}
	return api.ErrorCode == 10071 || api.ErrorCode == 10164
}

// answerTime is how long a write may take. An election swallows requests, and a busy
// machine makes the servers elect; such a write may be stored or not.
const answerTime = 5 * time.Second

// put writes once, and reports whether the server accepted or refused it.
func put(t *testing.T, js jetstream.JetStream, msg *nats.Msg) (yes, no bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()

	_, err := js.PublishMsg(ctx, msg)

	switch {
	case err == nil:
		return true, false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, jetstream.ErrNoStreamResponse):
		return false, false
	default:
		return false, refused(t, err)
	}
}

// hammer tries to insert keys from many connections until stopped, and returns how many
// writes the server accepted.
func hammer(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream), keys []string) (stop func() (accepted, tried int64)) {
	t.Helper()

	var (
		group     sync.WaitGroup
		yes, no   atomic.Int64
		ctx, done = context.WithCancel(t.Context())
	)

	for r := range rivals {
		_, js := connect()

		group.Go(func() {
			for i := r; ctx.Err() == nil; i++ {
				due := time.Time{}
				if i%2 == 0 {
					due = time.Now().Add(time.Hour)
				}

				accepted, refused := put(t, js, write(keys[i%len(keys)], fmt.Sprint("rival-", r), due))
				if accepted {
					yes.Add(1)
				} else if refused {
					no.Add(1)
				}
			}
		})
	}
	return func() (int64, int64) {
		done()
		group.Wait()
		return yes.Load(), yes.Load() + no.Load()
	}
}

// stored counts the messages of the job stream.
func stored(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()

	var n uint64

	err := natstest.UntilAnswered(t, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err == nil {
			n = s.CachedInfo().State.Msgs
		}
		return err
	})
	check.OK(t, err)
	return n
}

func TestServerKeepsAKeyTakenWhileItsScheduleFires(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream)) {
		const n = 20

		_, js := connect()
		fired := make(chan *nats.Msg, n)

		sub := check.Must(js.CreateOrUpdateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: "watch", FilterSubject: pattern}))(t)

		keys := make([]string, n)
		for k := range keys {
			keys[k] = fmt.Sprint("k.", k)
			msg := write(keys[k], "first", time.Now().Add(time.Duration(300+20*k)*time.Millisecond))

			// A stream whose leader is just being elected has no responder.
			check.OK(t, check.Err(js.PublishMsg(t.Context(), msg, jetstream.WithRetryAttempts(40))))
		}

		stop := hammer(t, connect, keys)

		consuming := check.Must(sub.Consume(func(msg jetstream.Msg) { fired <- &nats.Msg{Subject: msg.Subject(), Header: msg.Headers()} }))(t)
		defer consuming.Stop()

		for range n {
			msg := receive(t, fired, "a schedule to fire")
			check.That(t, msg.Header.Get("Job-Id") == "first", "%s fired with %v", msg.Subject, msg.Header)
		}

		accepted, tried := stop()
		if accepted != 0 || stored(t, js) != n || len(fired) != 0 {
			t.Errorf("%d of %d writes accepted, %d messages stored; want 0, %d", accepted, tried, stored(t, js), n)
		}

		t.Logf("%d writes refused", tried)
	})
}

func TestServerKeepsAKeyTakenWhileItsJobCompletes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream)) {
		const n = 50

		_, js := connect()

		consumer, err := js.CreateOrUpdateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: durable, FilterSubject: pattern})
		check.OK(t, err)

		keys := make([]string, n)
		for k := range keys {
			keys[k] = fmt.Sprint("k.", k)
			check.OK(t, check.Err(js.PublishMsg(t.Context(), write(keys[k], "first", time.Time{}))))
		}

		stop := hammer(t, connect, keys)

		for range n {
			msg := check.Must(consumer.Next())(t)

			meta, err := msg.Metadata()
			check.OK(t, err)

			record := nats.NewMsg("jobs-done" + msg.Subject()[len("jobs"):])
			record.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(meta.Sequence.Stream))
			record.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", "*"+msg.Subject()[len("jobs"):])
			record.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
			record.Header.Set(jetstream.MsgTTLHeader, "1h")

			// At R3 a write that is refused occupies nothing, one in flight does: try again.
			for {
				if _, err = js.PublishMsg(t.Context(), record); err == nil || !refused(t, err) {
					break
				}
			}

			check.OK(t, errors.Join(err, msg.DoubleAck(t.Context())))
		}

		accepted, tried := stop()
		check.That(t, accepted == 0, "%d of %d writes accepted, want 0", accepted, tried)

		// In a cluster a job leaves the stream a little after its acknowledgement.
		check.Until(t, patience(), "only the records to be left", func() bool { return stored(t, js) == n })
		t.Logf("%d writes refused", tried)
	})
}
