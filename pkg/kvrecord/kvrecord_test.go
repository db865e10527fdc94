package kvrecord_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestPutReplacesWhatWasRead(t *testing.T) {
	t.Parallel()
	s, _ := setup(t, natstest.Server(t))
	r, err := s.Get(t.Context(), "r.a")
	check.That(t, err == nil && r.Revision == 0 && r.Subject == "r.a", "got %+v, %v; want no record", r, err)
	header := nats.Header{"X": {"y"}}
	first, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("one"), Header: header})
	check.OK(t, err)
	check.That(t, len(header) == 1, "the caller's header became %v", header)
	_, err = s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("two")})
	if c := conflict(err); !errors.Is(err, kvrecord.ErrConflict) || c.Unknown || string(c.Found.Data) != "one" || c.Found.Revision != first.Revision {
		t.Errorf("got %v, %+v", err, c)
	}
	second := put(t, s, "two", conflict(err).Found)
	for name, read := range map[string]func(context.Context, string) (kvrecord.Record, error){"Get": s.Get, "Latest": s.Latest} {
		r, err := read(t.Context(), "r.a")
		check.That(t, err == nil && string(r.Data) == "two" && r.Revision == second.Revision && !r.Stored.IsZero() && r.AsOf >= r.Revision,
			"%s: got %+v, %v", name, r, err)
		check.That(t, r.Header.Get(kvrecord.HeaderWriter) != "" && strings.HasPrefix(r.Header.Get(kvrecord.HeaderReplaced), "1."),
			"%s: the headers are %v", name, r.Header)
	}
}

func TestARecordLivesForItsTTL(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		s, _ := setup(t, srv)
		for _, ttl := range []time.Duration{-time.Second, time.Millisecond, 1500 * time.Millisecond} {
			_, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a", TTL: ttl})
			check.That(t, err != nil && strings.Contains(err.Error(), "whole seconds"), "TTL %s: %v", ttl, err)
		}
		r, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a", TTL: 10 * time.Second})
		check.OK(t, err)
		natstest.Pass(9 * time.Second)
		r = check.Must(s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Over: r, TTL: 10 * time.Second}))(t)
		natstest.Pass(9 * time.Second)
		now, err := s.Get(t.Context(), "r.a")
		check.That(t, err == nil && now.Revision == r.Revision, "nine seconds later: %+v, %v", now, err)
		natstest.Pass(2 * time.Second)
		now, err = s.Get(t.Context(), "r.a")
		check.That(t, err == nil && now.Revision == 0, "eleven seconds later: %+v, %v", now, err)
	})
}

func TestReadsOfSeveralRecords(t *testing.T) {
	t.Parallel()
	s, _ := setup(t, natstest.Server(t))
	const n = 1300 // more than two requests for many subjects
	var subjects []string
	for i := range n {
		subjects = append(subjects, fmt.Sprintf("r.%d.%d", i%7, i))
		check.OK(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: subjects[i], Data: fmt.Append(nil, i)})))
	}
	byRevision := func(all []kvrecord.Record) (got []string) {
		for _, r := range slices.SortedFunc(slices.Values(all), func(a, b kvrecord.Record) int { return int(a.Revision) - int(b.Revision) }) {
			got = append(got, r.Subject)
		}
		return got
	}
	many, err := s.GetMany(t.Context(), append([]string{"r.none"}, subjects...))
	diff := cmp.Diff(subjects, byRevision(many))
	check.That(t, err == nil && diff == "", "GetMany: %v, -want +got\n%s", err, diff)
	for _, limit := range []int{1, 7, 1299, 1300, 5000} {
		var all []kvrecord.Record
		from, pages := uint64(1), 0
		for ; from > 0; pages++ {
			page, next, err := s.Scan(t.Context(), from, limit)
			check.Require(t, err == nil && len(page) <= limit && (next <= 0 || next > from),
				"pages of %d: %d from %d, next %d, %v", limit, len(page), from, next, err)
			all, from = append(all, page...), next
		}
		diff := cmp.Diff(subjects, byRevision(all))
		check.That(t, diff == "" && pages == (n+limit-1)/limit, "%d pages of %d: -want +got\n%s", pages, limit, diff)
	}
	listed, next, err := s.Subjects(t.Context(), "r.3.>", 0)
	want := slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { return !strings.HasPrefix(s, "r.3.") })
	diff = cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(listed)))
	check.That(t, err == nil && next == 0 && diff == "", "Subjects: next %d, %v, -want +got\n%s", next, err, diff)
}

// A page holds 8 MiB at most, and the next goes on behind it.
func TestAPageIsBoundInBytes(t *testing.T) {
	t.Parallel()
	s, _ := setup(t, natstest.Server(t))
	for i := range 200 {
		check.OK(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: fmt.Sprint("r.", i), Data: make([]byte, 100<<10)})))
	}
	var sizes []int
	for from := uint64(1); from > 0; {
		page, next, err := s.Scan(t.Context(), from, 1000)
		check.OK(t, err)
		sizes, from = append(sizes, len(page)), next
	}
	total := sizes[0] + sizes[1] + sizes[len(sizes)-1]
	check.That(t, len(sizes) == 3 && total == 200 && sizes[0] <= 84, "pages of %v", sizes)
}

// Behind the last record there is none, and in a stream without any: that is an answer, and not one to be waited for.
func TestAScanBehindTheLastRecordFindsNone(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		create(t, js)
		s := open(t, srv)
		begun := time.Now()
		none := func(from uint64) {
			t.Helper()
			page, next, err := s.Scan(t.Context(), from, 10)
			check.That(t, err == nil && len(page) == 0 && next == 0, "from %d: %d records, next %d, %v", from, len(page), next, err)
		}
		none(1)
		none(7)
		put(t, s, "1", kvrecord.Record{})
		none(2)
		none(1000)
		took := time.Since(begun)
		check.That(t, took <= 0, "it took %s", took)
	})
}

// Records behind a domain are reached through its prefix, those of buckets and of other streams. The server of the domain
// would answer requests without the prefix too: none is sent.
func TestADomainIsHonoured(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.JetStreamDomain = "hub" })
	})
	_, local := natstest.Connect(t, srv)
	create(t, local)
	check.OK(t, check.Err(local.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})))
	proxy := natstest.NewProxy(t, srv)
	nc, _ := natstest.Connect(t, srv, proxy.Through())
	proxy.Filter(func(f natstest.Frame) natstest.Verdict {
		check.That(t, !f.FromClient || !strings.HasPrefix(f.Subject, "$JS.API.") && !strings.HasPrefix(f.Subject, "$KV."),
			"%s was sent without the prefix", f.Subject)
		return natstest.Relay
	})
	byDomain := check.Must(jetstream.NewWithDomain(nc, "hub"))(t)
	byPrefix := check.Must(jetstream.NewWithAPIPrefix(nc, "$JS.hub.API"))(t)
	for name, js := range map[string]jetstream.JetStream{"domain": byDomain, "prefix": byPrefix} {
		c := client(t, kvrecord.Config{JetStream: js})
		for subject, s := range map[string]*kvrecord.Stream{"r." + name: c.Stream(streamName), "$KV.b." + name: c.Bucket("b")} {
			check.ErrorIs(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: subject})), nil, subject)
			r, err := s.Get(t.Context(), subject)
			check.That(t, err == nil && r.Revision != 0, "%s: got %+v, %v", subject, r, err)
			r, err = s.Latest(t.Context(), subject)
			check.That(t, err == nil && r.Revision != 0, "%s: the leader has %+v, %v", subject, r, err)
			page, _, err := s.Scan(t.Context(), 1, 10)
			check.That(t, err == nil && len(page) != 0, "%s: got %d records, %v", name, len(page), err)
		}
	}
}

func TestErrorsSayWhatWasWrong(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		create(t, js, func(c *jetstream.StreamConfig) {
			c.MaxMsgSize, c.MaxMsgs, c.Discard, c.DiscardNewPerSubject = 1000, 2, jetstream.DiscardNew, true
		})
		s := open(t, srv)
		ended, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		closed := open(t, srv)
		closed.Close()
		closed.Close()
		nc, js := natstest.Connect(t, srv)
		over := client(t, kvrecord.Config{JetStream: js}).Stream(streamName)
		nc.Close()
		put(t, s, "1", kvrecord.Record{})
		check.OK(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: "r.b"})))
		for name, c := range map[string]struct {
			s    *kvrecord.Stream
			ctx  context.Context
			size int
			want []error
		}{
			"a payload the server does not take":   {s, t.Context(), 2 << 20, []error{kvrecord.ErrTooLarge, nats.ErrMaxPayload}},
			"a message that the stream refuses":    {s, t.Context(), 1001, []error{kvrecord.ErrTooLarge}},
			"a full stream":                        {s, t.Context(), 0, []error{kvrecord.ErrFull, kvrecord.ErrUnavailable}},
			"a context that has ended":             {s, ended, 0, []error{enough}},
			"a client that is closed":              {closed, t.Context(), 0, []error{kvrecord.ErrClosed}},
			"a connection that is closed for good": {over, t.Context(), 0, []error{kvrecord.ErrUnavailable, nats.ErrConnectionClosed}},
		} {
			begun := time.Now()
			_, err := c.s.Put(c.ctx, kvrecord.Write{Subject: "r.c", Data: make([]byte, c.size)})
			took := time.Since(begun)
			check.That(t, took <= 0, "%s: tried again for %s, which cannot help", name, took)
			for _, want := range c.want {
				check.That(t, errors.Is(err, want) && strings.Contains(err.Error(), "r.c"), "%s: got %v, want %v", name, err, want)
			}
			check.That(t, errors.Is(err, kvrecord.ErrUnavailable) == slices.Contains(c.want, kvrecord.ErrUnavailable), "%s: got %v", name, err)
		}
		// A stream that keeps one message for each subject and refuses a second says so in another way.
		check.ErrorIs(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: "r.a"})), kvrecord.ErrConflict)
		if _, err := s.Client.Stream("NONE").Latest(t.Context(), "r.a"); !errors.Is(err, kvrecord.ErrUnavailable) || !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("a stream that is not there: %v", err)
		}
		begun := time.Now()
		srv.Stop()
		for name, f := range map[string]func() error{
			"Put":      func() error { return check.Err(s.Put(t.Context(), kvrecord.Write{Subject: "r.a"})) },
			"Get":      func() error { return check.Err(s.Get(t.Context(), "r.a")) },
			"Latest":   func() error { return check.Err(s.Latest(t.Context(), "r.a")) },
			"GetMany":  func() error { return check.Err(s.GetMany(t.Context(), []string{"r.a"})) },
			"Scan":     func() error { _, _, err := s.Scan(t.Context(), 1, 1); return err },
			"Subjects": func() error { _, _, err := s.Subjects(t.Context(), ">", 0); return err },
		} {
			err := f()
			check.ErrorIs(t, err, kvrecord.ErrUnavailable, name)
			check.ErrorIs(t, err, context.DeadlineExceeded, name) // which jsretry.Transient knows
		}
		took := time.Since(begun)
		check.That(t, took <= 6*10*time.Second+time.Second, "six operations took %s, want 10 s each at most", took)
	})
}

// A server leaves a request that is not permitted unanswered. The error holds the refusal that the connection received.
func TestARequestThatIsNotPermitted(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, admin := natstest.Connect(t, srv)
		create(t, admin)
		silent := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
		s := open(t, srv, natstest.Restricted(), silent)
		_, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a"})
		check.That(t, errors.Is(err, kvrecord.ErrUnavailable) && errors.Is(err, nats.ErrPermissionViolation), "got %v", err)
	}, natstest.Restrict(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"r.>"}}}))
}

// A configuration that is wrong is refused with everything that is wrong with it.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := kvrecord.New(kvrecord.Config{Try: 2 * time.Second, Timeout: time.Second})
	check.ErrorContains(t, err, "no JetStream", "a request has 2s and an operation 1s")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// streamName is the stream of the tests, and where it keeps its streamName.
const streamName = "R"

// create makes the stream.
func create(t testing.TB, js jetstream.JetStream, mutate ...func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"r.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, AllowMsgTTL: true,
	}
	for _, m := range mutate {
		m(&cfg)
	}
	check.OK(t, check.Err(js.CreateStream(t.Context(), cfg)))
}

// open returns the stream, over a separate connection.
func open(t testing.TB, srv *natsrun.Server, opts ...nats.Option) *kvrecord.Stream {
	t.Helper()
	_, js := natstest.Connect(t, srv, opts...)
	return client(t, kvrecord.Config{JetStream: js}).Stream(streamName)
}

func client(t testing.TB, cfg kvrecord.Config) *kvrecord.Client {
	t.Helper()
	c := check.Must(kvrecord.New(cfg))(t)
	t.Cleanup(c.Close)
	return c
}

// setup makes the stream and returns it.
func setup(t testing.TB, srv *natsrun.Server) (*kvrecord.Stream, jetstream.JetStream) {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	create(t, js)
	return open(t, srv), js
}

// put writes a record and fails the test when it cannot.
func put(t testing.TB, s *kvrecord.Stream, data string, over kvrecord.Record) kvrecord.Record {
	t.Helper()
	return check.Must(s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte(data), Over: over}))(t)
}

// isWrite reports whether a message writes a record.
func isWrite(f natstest.Frame) bool {
	return f.FromClient && strings.HasPrefix(strings.TrimPrefix(f.Subject, streamName+"-1."), "r.")
}

func conflict(err error) kvrecord.ConflictError {
	if c, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		return *c
	}
	return kvrecord.ConflictError{}
}

// Deleted tells the marks of a bucket from records.
func TestDeletedKeysOfABucket(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv)
	kv := check.Must(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"}))(t)
	s := client(t, kvrecord.Config{JetStream: js}).Bucket("b")
	remove := map[string]func(context.Context, string, ...jetstream.KVDeleteOpt) error{"deleted": kv.Delete, "purged": kv.Purge, "kept": nil}
	for _, key := range slices.Collect(maps.Keys(remove)) {
		check.OK(t, check.Err(kv.Put(t.Context(), key, []byte("v"))))
		if remove[key] != nil {
			check.OK(t, remove[key](t.Context(), key))
		}
		r, err := s.Get(t.Context(), "$KV.b."+key)
		check.That(t, err == nil && r.Deleted() == (remove[key] != nil) && (len(r.Data) == 0) == r.Deleted(), "%s: got %+v, %v", key, r, err)
		check.ErrorIs(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: "$KV.b." + key, Data: []byte("w"), Over: r})), nil, key)
	}
}

// Put says what became of a write of which no acknowledgement came, whatever others wrote before it could look.
func TestPutKnowsTheOutcome(t *testing.T) {
	const stored, refused, unknown = "stored", "refused", "unknown"
	for _, c := range []struct {
		fault  natstest.Fault
		others int // writes by another client before the record is read back
		want   string
		now    string // the record in the end
	}{
		{natstest.ReplyLost, 0, stored, "mine"},
		{natstest.ReplyLost, 1, stored, "other 0"},
		{natstest.ReplyLost, 2, unknown, "other 1"},
		{natstest.RefusedApplied, 0, stored, "mine"},
		{natstest.RefusedApplied, 1, stored, "other 0"},
		{natstest.RefusedApplied, 2, unknown, "other 1"},
		{natstest.WriteLost, 0, stored, "mine"},
		{natstest.WriteLost, 1, refused, "other 0"},
		{natstest.WriteLost, 2, unknown, "other 1"},
	} {
		for _, over := range []string{"no record", "a record"} {
			natstest.RunBubble(t, fmt.Sprintf("%s, %d others, over %s", c.fault, c.others, over), func(t *testing.T, srv *natsrun.Server) {
				other, _ := setup(t, srv)
				p := natstest.NewProxy(t, srv)
				s := open(t, srv, p.Through())
				exists := over != "no record"
				var over kvrecord.Record
				if exists {
					over = put(t, other, "first", over)
				}
				p.Slow(100 * time.Millisecond) // written at 0.1 s, read back at 0.2 s or later
				p.Hit(isWrite, c.fault, 1)
				type result struct {
					kvrecord.Record

					err error
				}
				done := make(chan result, 1)
				go func() {
					r, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("mine"), Over: over})
					done <- result{r, err}
				}()
				natstest.Pass(150 * time.Millisecond)
				for n := range c.others {
					now := check.Must(other.Latest(t.Context(), "r.a"))(t)
					put(t, other, fmt.Sprint("other ", n), now)
				}
				r := <-done
				got := stored
				if r.err != nil {
					got = map[bool]string{false: refused, true: unknown}[conflict(r.err).Unknown]
					check.That(t, errors.Is(r.err, kvrecord.ErrConflict) && string(conflict(r.err).Found.Data) == c.now,
						"%v, with %q found, want %q", r.err, conflict(r.err).Found.Data, c.now)
				}
				check.That(t, got == c.want, "got %s, %v; want %s", got, r.err, c.want)
				now, err := other.Latest(t.Context(), "r.a")
				check.That(t, err == nil && string(now.Data) == c.now, "there is %q, %v; want %q", now.Data, err, c.now)
				check.That(t, got != stored || c.others != 0 || now.Revision == r.Revision, "stored at %d, returned %d", now.Revision, r.Revision)
			})
		}
	}
}

// PutOnce asks once. Its result is no proof when the answer was lost, or contradicts the outcome.
func TestPutOnceAsksOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fault  natstest.Fault
		want   error
		stored bool
	}{
		"the acknowledgement is lost": {natstest.ReplyLost, kvrecord.ErrUnavailable, true},
		"the write is lost":           {natstest.WriteLost, kvrecord.ErrUnavailable, false},
		"refused and applied":         {natstest.RefusedApplied, kvrecord.ErrConflict, true},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			other, _ := setup(t, srv)
			p := natstest.NewProxy(t, srv)
			s := open(t, srv, p.Through())
			first := check.Must(s.PutOnce(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("first")}))(t)
			var asked atomic.Int32
			p.Hit(func(f natstest.Frame) bool {
				if f.FromClient && f.Subject != "" {
					asked.Add(1)
				}
				return isWrite(f)
			}, c.fault, 9)
			check.ErrorIs(t, check.Err(s.PutOnce(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("second"), Over: first})), c.want)
			check.Equal(t, asked.Load(), 1, "asked.Load()")
			now, err := other.Latest(t.Context(), "r.a")
			check.That(t, err == nil && (string(now.Data) == "second") == c.stored, "there is %q, %v", now.Data, err)
			check.ErrorIs(t, check.Err(other.PutOnce(t.Context(), kvrecord.Write{Subject: "r.a"})), kvrecord.ErrConflict)
			check.ErrorIs(t, check.Err(other.PutOnce(t.Context(), kvrecord.Write{Subject: "r.a", Over: now})), nil)
		})
	}
}

// A leader that was deposed and does not know it answers with an earlier record. That is no conflict.
func TestAnOlderAnswerIsNoConflict(t *testing.T) {
	absent := `{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","error":{"code":404,"err_code":10037,"description":"no message found"}}`
	for name, answers := range map[string]map[string]string{
		"no record":       {"MSG.GET": absent},
		"an older record": {"MSG.GET": `{"message":{"subject":"r.a","seq":1,"data":"b2xk","time":"2000-01-01T00:00:00Z"}}`},
		"nor a later end": {"MSG.GET": absent, "STREAM.INFO": `{"created":"%s","state":{"last_seq":1}}`},
		"the old stream":  {"MSG.GET": absent, "STREAM.INFO": `{"created":"1999-12-31T00:00:00Z","state":{"last_seq":9}}`},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			_, js := setup(t, srv)
			p := natstest.NewProxy(t, srv)
			s := open(t, srv, p.Through())
			over := put(t, s, "two", put(t, s, "one", kvrecord.Record{}))
			synctest.Wait() // when the stream was made is known
			info := check.Must(js.Stream(t.Context(), streamName))(t)
			asked := map[string]string{} // the method of a request by its reply
			p.Hit(func(f natstest.Frame) bool {
				for method := range answers {
					if strings.Contains(f.Subject, method) {
						asked[f.Reply] = method
					}
				}
				return isWrite(f)
			}, natstest.WriteLost, 3) // the last one asks the new leader
			lied := 0
			p.Change(func(f natstest.Frame) []byte {
				method := asked[f.Subject]
				if f.FromClient || method == "" {
					return nil
				}
				lied++
				answer := answers[method]
				if strings.Contains(answer, "%s") {
					answer = fmt.Sprintf(answer, info.CachedInfo().Created.Format(time.RFC3339Nano))
				}
				check.That(t, json.Valid([]byte(answer)), "not JSON: %s", answer)
				return f.With([]byte(answer), 0)
			})
			third := put(t, s, "three", over)
			if now, err := s.Latest(t.Context(), "r.a"); err != nil || now.Revision != third.Revision || string(now.Data) != "three" {
				t.Errorf("there is %q at %d, %v; want three at %d", now.Data, now.Revision, err, third.Revision)
			}
			check.That(t, lied >= 2, "the old leader answered %d times", lied)
		})
	}
}

// A record of the writer that a leader had when it was deposed may never have been stored. Put does not take it for done.
func TestARecordThatOnlyADeposedLeaderHas(t *testing.T) {
	for _, others := range []int{0, 1} {
		natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
			other, _ := setup(t, srv)
			p := natstest.NewProxy(t, srv)
			s := open(t, srv, p.Through())
			over := put(t, s, "first", kvrecord.Record{})
			writer, reply := "", ""
			p.Filter(func(f natstest.Frame) natstest.Verdict {
				switch {
				case isWrite(f) && writer == "":
					_, rest, _ := bytes.Cut(f.Payload(), []byte(kvrecord.HeaderWriter+": "))
					header, _, _ := bytes.Cut(rest, []byte("\r\n"))
					writer = string(header)
					return natstest.Lose
				case f.FromClient && strings.Contains(f.Subject, "MSG.GET") && reply == "":
					reply = f.Reply
				}
				return natstest.Relay
			})
			p.Change(func(f natstest.Frame) []byte {
				if f.FromClient || f.Subject != reply {
					return nil
				}
				if others > 0 {
					check.ErrorIs(t, check.Err(other.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("other"), Over: over})), nil)
				}
				header := base64.StdEncoding.EncodeToString([]byte("NATS/1.0\r\n" + kvrecord.HeaderWriter + ": " + writer + "\r\n\r\n"))
				return f.With(fmt.Appendf(nil, `{"message":{"subject":"r.a","seq":7,"hdrs":%q,"time":"2000-01-01T00:00:00Z"}}`, header), 0)
			})
			r, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte("mine"), Over: over})
			check.Require(t, writer != "" && reply != "", "nothing was lost")
			now := check.Must(other.Latest(t.Context(), "r.a"))(t)
			check.That(t, others != 0 || err == nil && string(now.Data) == "mine" && now.Revision == r.Revision,
				"put at %d, %v; there is %q at %d", r.Revision, err, now.Data, now.Revision)
			check.That(t, others <= 0 || errors.Is(err, kvrecord.ErrConflict) && !conflict(err).Unknown && string(now.Data) == "other",
				"put: %v; there is %q", err, now.Data)
		})
	}
}

// A record that is there no more is a conflict, however it went.
func TestARecordThatIsGone(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, js jetstream.JetStream, s *kvrecord.Stream, r kvrecord.Record){
		"expired": func(*testing.T, jetstream.JetStream, *kvrecord.Stream, kvrecord.Record) {
			natstest.Pass(5 * time.Second)
		},
		"removed": func(t *testing.T, js jetstream.JetStream, _ *kvrecord.Stream, r kvrecord.Record) {
			t.Helper()
			stream := check.Must(js.Stream(t.Context(), streamName))(t)
			check.OK(t, stream.DeleteMsg(t.Context(), r.Revision))
		},
		"stream recreated": func(t *testing.T, js jetstream.JetStream, _ *kvrecord.Stream, _ kvrecord.Record) {
			t.Helper()
			recreateStream(t, js)
		},
		"stream recreated and further": func(t *testing.T, js jetstream.JetStream, s *kvrecord.Stream, _ kvrecord.Record) {
			t.Helper()
			recreateStream(t, js)
			for n := range 5 {
				check.OK(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: fmt.Sprint("r.b", n)})))
			}
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			s, js := setup(t, srv)
			put(t, s, "zero", kvrecord.Record{})
			synctest.Wait() // when the stream was made is known
			over, err := s.Latest(t.Context(), "r.a")
			check.OK(t, err)
			over, err = s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Over: over, TTL: 2 * time.Second})
			check.OK(t, err)
			remove(t, js, s, over)
			_, err = s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Over: over})
			c := conflict(err)
			check.Require(t, errors.Is(err, kvrecord.ErrConflict) && c.Found.Revision == 0 && c.Found.Subject == "r.a", "got %v, %+v", err, c.Found)
			put(t, s, "again", conflict(err).Found)
		})
	}
}

// recreateStream deletes the stream and recreates it. Another stream stays, for the server removes the folder of streams with the last.
func recreateStream(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	check.OK(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}})))
	check.OK(t, js.DeleteStream(t.Context(), streamName))
	natstest.Pass(time.Millisecond) // it is known by when it was made
	create(t, js)
}
