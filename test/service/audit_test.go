package service_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// audited is a server with the stream of the audit, and a log of one source.
func audited(t *testing.T, source string, through func(jetstream.Publisher) jetstream.Publisher) (jetstream.JetStream, *audit.Log) {
	t.Helper()
	_, js := natstest.Connect(t, natstest.Server(t))
	assets := contracts.Streams(contracts.AssetOptions{Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(provision.Apply(t.Context(), js, assets, provision.Options{})))
	return js, audit.New(audit.Config{JetStream: through(js), Logger: slog.New(slog.DiscardHandler), Source: source})
}

func direct(js jetstream.Publisher) jetstream.Publisher { return js }

func listed(t *testing.T, js jetstream.JetStream, limit int) []audit.Record {
	t.Helper()
	return check.Must(audit.List(t.Context(), js, limit))(t)
}

func does(n int, err error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, err }
}

var errActed = errors.New("half of it failed")

func TestEachActionHasOneRecord(t *testing.T) {
	t.Parallel()
	js, log := audited(t, "shop", direct)
	check.Equal(t, len(listed(t, js, 10)), 0, "result")
	check.ErrorIs(t, log.Do(t.Context(), "cancel", "x", does(3, nil)), nil)
	check.ErrorIs(t, log.Do(t.Context(), "replay", "y", does(2, errActed)), errActed)
	ctx, cancel := context.WithCancel(t.Context())
	err := log.Do(ctx, "enable", "z", func(ctx context.Context) (int, error) { // its caller goes away, and its process does not
		cancel()
		all := listed(t, js, 10)
		check.That(t, len(all) == 3 && all[0].Outcome == audit.Begun && all[0].Target == "z", "while it is done: %+v", all)
		return 0, ctx.Err()
	})
	check.ErrorIs(t, err, context.Canceled)
	all := listed(t, js, 10)
	for i, want := range []audit.Record{
		{Action: "enable", Target: "z", Outcome: audit.Failed},
		{Action: "replay", Target: "y", Count: 2, Outcome: audit.Failed},
		{Action: "cancel", Target: "x", Count: 3, Outcome: audit.Done},
	} {
		want.ID, want.At, want.Source, want.Actor = all[i].ID, all[i].At, "shop", audit.ActorNATS
		check.That(t, len(all) == 3 && all[i] == want && all[i].ID != "" && !all[i].At.IsZero(), "%+v, want %+v", all, want)
	}
	latest := listed(t, js, 1)
	check.That(t, len(latest) == 1 && latest[0] == all[0], "%+v", latest)
	if stream, err := js.Stream(t.Context(), contracts.StreamAudit); err != nil || stream.CachedInfo().State.Consumers != 0 {
		t.Error("a consumer stays", err)
	}
}

// leaderless is a stream that has no leader for a while.
type leaderless struct {
	jetstream.Publisher

	until time.Time
}

func (l leaderless) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if time.Now().Before(l.until) {
		return nil, nats.ErrNoResponders
	}
	return &jetstream.PubAck{}, nil
}

// An action waits for an election. Without a record it is not done.
func TestNothingIsDoneWithoutARecord(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natsrun.Server) {
		for away, want := range map[time.Duration]error{9 * time.Second: nil, time.Minute: audit.ErrUnavailable} {
			log := audit.New(audit.Config{JetStream: leaderless{until: time.Now().Add(away)}, Logger: slog.New(slog.DiscardHandler), Source: "shop"})
			done := false
			err := log.Do(t.Context(), "cancel", "x", func(context.Context) (int, error) {
				done = true
				return 1, nil
			})
			check.ErrorIs(t, err, want, away)
			check.Equal(t, done, want == nil, "it is done")
		}
	})
}

// deaf loses the answer to each message but the second copy.
type deaf struct {
	jetstream.Publisher

	lost map[string]bool
}

func (d deaf) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := d.Publisher.PublishMsg(ctx, msg, opts...)
	if err == nil && !d.lost[string(msg.Data)] {
		d.lost[string(msg.Data)] = true
		return nil, nats.ErrTimeout
	}
	return ack, err
}

func TestALostAnswerIsNoSecondRecord(t *testing.T) {
	t.Parallel()
	js, log := audited(t, "shop", func(p jetstream.Publisher) jetstream.Publisher { return deaf{p, map[string]bool{}} })
	check.ErrorIs(t, log.Do(t.Context(), "cancel", "x", does(1, nil)), nil)
	stream, err := js.Stream(t.Context(), contracts.StreamAudit)
	check.That(t, err == nil && stream.CachedInfo().State.Msgs == 2 && len(listed(t, js, 10)) == 1, "%+v %v", stream.CachedInfo().State, err)
}

// A message may say anything. The source of its record is that of the subject, and earlier records stay as they are.
func TestARecordIsNotForged(t *testing.T) {
	t.Parallel()
	js, log := audited(t, "cli", direct)
	check.ErrorIs(t, log.Do(t.Context(), "steal", "x", does(1, nil)), nil)
	genuine := listed(t, js, 10)[0]
	forged := `{"id":"` + genuine.ID + `","source":"cli","actor":"other","action":"none","target":"y","count":9,"outcome":"failed"}`
	for _, subject := range []string{"audit.cli.operators", "audit.shop.operators"} {
		check.OK(t, check.Err(js.Publish(t.Context(), subject, []byte(forged))))
	}
	check.OK(t, check.Err(js.Publish(t.Context(), "audit.shop.operators", []byte("secret"))))
	all := listed(t, js, 10)
	if len(all) != 3 || all[2] != genuine || all[1].Source != "shop" || all[1].Action != "none" || all[0].Target != "unreadable record of 6 bytes" {
		t.Errorf("%+v", all)
	}
}

// A stream for which no server answers does not hold up its reader for ever.
func TestListEndsWhenNothingAnswers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		cfg := jetstream.StreamConfig{Name: contracts.StreamAudit, Subjects: []string{"audit.>"}} // without AllowDirect
		check.OK(t, check.Err(js.CreateStream(t.Context(), cfg)))
		check.OK(t, check.Err(js.Publish(t.Context(), "audit.x.y", []byte("{}"))))
		_, err := audit.List(t.Context(), js, 1)
		check.ErrorContains(t, err, "no server answers")
	})
}
