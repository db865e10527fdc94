package kvrecord_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
					if !errors.Is(r.err, kvrecord.ErrConflict) || string(conflict(r.err).Found.Data) != c.now {
						t.Errorf("%v, with %q found, want %q", r.err, conflict(r.err).Found.Data, c.now)
					}
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
			info := check.Must(js.Stream(t.Context(), records))(t)
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
			stream := check.Must(js.Stream(t.Context(), records))(t)
			check.OK(t, stream.DeleteMsg(t.Context(), r.Revision))
		},
		"stream recreated": func(t *testing.T, js jetstream.JetStream, _ *kvrecord.Stream, _ kvrecord.Record) {
			t.Helper()
			again(t, js)
		},
		"stream recreated and further": func(t *testing.T, js jetstream.JetStream, s *kvrecord.Stream, _ kvrecord.Record) {
			t.Helper()
			again(t, js)
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

// again deletes the stream and recreates it. Another stream stays, for the server removes the folder of streams with the last.
func again(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	check.OK(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}})))
	check.OK(t, js.DeleteStream(t.Context(), records))
	natstest.Pass(time.Millisecond) // it is known by when it was made
	create(t, js)
}
