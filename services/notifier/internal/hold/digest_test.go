package hold_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

// place is a server with the stores of digests of two processes.
type place struct {
	*testing.T

	stores [2]*hold.Digests
	js     jetstream.JetStream
	user   string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	js, _ := recordtest.Open(t, natstest.Server(t))
	s := &place{T: t, js: js, user: "u"}
	for i := range s.stores {
		s.stores[i] = hold.NewDigests(recordtest.Client(t, js))
	}
	return s
}

// about is the notification of an event that is delivered in digests.
func about(id string) *contracts.Notification {
	return &contracts.Notification{
		Category: "c", Channel: "bird", CreatedAt: time.Unix(1, 0).UTC(), Digest: &contracts.Digest{Every: 60}, EventID: id, EventType: "X",
		Payload: json.RawMessage(`{"of":"` + id + `"}`), RecipientType: "CUSTOMER", UserID: "u",
	}
}

// into is the digest of the user.
func (s *place) into() *contracts.Notification {
	row := about("any")
	row.UserID = s.user
	return hold.DigestRow(row, time.Unix(3600, 0))
}

// join has a process put an event into the digest, and reports whether it is there.
func (s *place) join(process int, event *contracts.Notification) bool {
	s.Helper()
	joined, err := s.stores[process].Join(s.Context(), s.into(), event)
	check.ErrorIs(s, err, nil)
	return joined
}

// seal has a process seal the digest, without events that are cancelled.
func (s *place) seal(process int, cancelled ...string) *hold.Digest {
	s.Helper()
	d, err := s.stores[process].Seal(s.Context(), s.into(), func(m hold.Mark) bool {
		return slices.ContainsFunc(cancelled, func(id string) bool { return hold.MarkOf(id) == m })
	})
	check.OK(s, err)
	return d
}

// record is the subject of the digest's record.
func (s *place) record() string {
	s.Helper()
	key := check.Must(keys.Digest(s.into().EventID, "bird", "CUSTOMER", s.user))(s)
	return "$KV." + contracts.BucketDeliveries + "." + key
}

// stored returns the last message of a stream under a subject, nil when there is none.
func (s *place) stored(name, subject string) []byte {
	s.Helper()
	stream := check.Must(s.js.Stream(s.Context(), name))(s)
	msg, err := stream.GetLastMsgForSubject(s.Context(), subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	check.OK(s, err)
	return msg.Data
}

func ids(d *hold.Digest) []string {
	var all []string
	for _, item := range d.Items {
		all = append(all, item.EventID)
	}
	slices.Sort(all)
	return all
}

// However many processes put events into a digest, at the same moment and again and again, each event is in it once, and
// the digest has one notification.
func TestAnEventIsInADigestOnce(t *testing.T) {
	t.Parallel()
	s := newPlace(t)
	var all sync.WaitGroup
	var want []string
	for n := range 20 {
		id := fmt.Sprintf("e%02d", n)
		want = append(want, id)
		for process := range s.stores {
			for range 2 {
				all.Go(func() {
					check.That(t, s.join(process, about(id)), "%s is not in the digest", id)
				})
			}
		}
	}
	all.Wait()
	d := s.seal(0)
	if !slices.Equal(ids(d), want) || d.Count() != len(want) {
		t.Errorf("%d events: %v", d.Count(), ids(d))
	}
	stream := check.Must(s.js.Stream(t.Context(), contracts.StreamNotifications))(t)
	info, err := stream.Info(t.Context())
	check.That(t, err == nil && info.State.LastSeq == 1, "%d rows were stored: %v", info.State.LastSeq, err)
}

// No event goes into a sealed digest, and every later Seal returns the same digest, also when events are cancelled later. A
// notification whose event was put in before, and that asks again, learns that the event is there.
func TestASealedDigestStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := newPlace(t)
	s.join(0, about("a"))
	s.join(1, about("b"))
	s.join(0, about("gone"))
	first := s.seal(0, "gone")
	check.That(t, slices.Equal(ids(first), []string{"a", "b"}) && first.Count() == 2 && !first.Sealed.IsZero(), "%+v", first)
	check.That(t, !s.join(1, about("late")) && s.join(1, about("a")), "it took an event after it was sealed, or forgot one")
	again := s.seal(1, "a")
	want := check.Must(first.Payload())(t)
	got, err := again.Payload()
	check.That(t, err == nil && string(got) == string(want) && again.Sealed.Equal(first.Sealed), "%s, and then %s: %v", want, got, err)
}

// One that is sealed before it has anything is sealed too.
func TestAnEmptyDigestIsSealed(t *testing.T) {
	t.Parallel()
	s := newPlace(t)
	d := s.seal(0)
	check.That(t, d.Count() == 0 && !d.Sealed.IsZero() && !s.join(1, about("a")), "%+v, and it took an event", d)
}

// Seal and Join at the same moment: an event that Join reports as there is in the digest that Seal returned.
func TestAnEventIsNotLostBetweenJoinAndSeal(t *testing.T) {
	t.Parallel()
	s := newPlace(t)
	for round := range 20 {
		s.user = fmt.Sprint("u", round)
		var all sync.WaitGroup
		var joined [8]bool
		for n := range joined {
			all.Go(func() { joined[n] = s.join(n%2, about(fmt.Sprint("e", n))) })
		}
		d := s.seal(round % 2)
		all.Wait()
		var want []string
		for n := range joined {
			if joined[n] {
				want = append(want, fmt.Sprint("e", n))
			}
		}
		if !slices.Equal(ids(d), want) {
			t.Errorf("%v were reported to be in it, it has %v", want, ids(d))
		}
	}
}

// The notification of a digest is stored before its record, so that none is forgotten, and an event that is called like a digest gets no
// other events.
func TestTheRowComesBeforeTheRecord(t *testing.T) {
	t.Parallel()
	s := newPlace(t)
	foreign := about(s.into().EventID)
	data := check.Must(contracts.Encode(*foreign))(t)
	subject := check.Must(contracts.NotifySendSubject("bird", "CUSTOMER", "u", foreign.EventID))(t)
	check.OK(t, check.Err(s.js.Publish(t.Context(), subject, data)))
	joined, err := s.stores[0].Join(t.Context(), s.into(), about("a"))
	check.That(t, errors.Is(err, hold.ErrForeign) && !joined, "%t: %v", joined, err)
	data = s.stored("KV_"+contracts.BucketDeliveries, s.record())
	check.That(t, data == nil, "there is a record without a row: %s", data)
}

// A record delivers the first 100 events, counts 5,000 more and takes no others, and with the largest ids and payloads that there are
// it fits into a message.
func TestADigestIsBounded(t *testing.T) {
	t.Parallel()
	s := newPlace(t)
	largest := func(n int, payload string) *contracts.Notification {
		event := about(fmt.Sprintf("%0*d", contracts.MaxID, n))
		event.EventType, event.Template = strings.Repeat("t", 64), strings.Repeat("<", contracts.MaxText)
		event.Payload = json.RawMessage(payload)
		return event
	}
	kept, over := `"`+strings.Repeat("é", 1023)+`"`, `"`+strings.Repeat("é", 1024)+`"`
	s.join(0, largest(0, kept))
	s.join(0, largest(1, over))
	var d hold.Digest
	check.OK(t, json.Unmarshal(s.stored("KV_"+contracts.BucketDeliveries, s.record()), &d))
	check.Require(t, len(d.Items) == 2 && string(d.Items[0].Payload) == kept && string(d.Items[1].Payload) == "null", "%+v", d.Items)
	// As if others had come: the record is full but for one.
	d.Items = slices.Repeat(d.Items[:1], hold.MaxItems-1)
	d.Members += strings.Repeat("AAAAAAAAAAAAAAAA", hold.MaxItems+hold.MaxMore-1-d.Count())
	data := check.Must(json.Marshal(d))(t)
	check.OK(t, check.Err(s.js.Publish(t.Context(), s.record(), data)))
	check.That(t, s.join(0, largest(2, kept)) && !s.join(0, about("one too many")) && s.join(1, largest(2, kept)),
		"a full digest took another event, or forgot one")
	size := len(s.stored("KV_"+contracts.BucketDeliveries, s.record()))
	check.That(t, size <= 1<<20-4<<10, "the record has %d bytes", size)
	sealed := s.seal(0)
	check.That(t, len(sealed.Items) == hold.MaxItems && sealed.Count() == hold.MaxItems+hold.MaxMore,
		"%d events, %d of them delivered", sealed.Count(), len(sealed.Items))
}

// Events of one category, or else of one template, are delivered together, by the clock of the user's zone.
func TestWhichDigestARowGoesInto(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 20, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		row  contracts.Notification
		zone string
		id   string
		bad  bool
	}{
		"a category":   {contracts.Notification{Category: "c", Template: "t", Digest: &contracts.Digest{Every: 60}}, "", "digest:c:2026-03-04T11:00:00Z", false},
		"a template":   {contracts.Notification{Template: "t", Digest: &contracts.Digest{Every: 60}}, "", "digest:template/t:2026-03-04T11:00:00Z", false},
		"a type":       {contracts.Notification{EventType: "X", Digest: &contracts.Digest{Every: 60}}, "", "digest:template/X:2026-03-04T11:00:00Z", false},
		"a half hour":  {contracts.Notification{Category: "c", Digest: &contracts.Digest{Every: 60}}, "Asia/Kolkata", "digest:c:2026-03-04T10:30:00Z", false},
		"a time":       {contracts.Notification{Category: "c", Digest: &contracts.Digest{At: []string{"09:00", "12:00"}}}, "Europe/Rome", "digest:c:2026-03-04T11:00:00Z", false},
		"unknown zone": {contracts.Notification{Category: "c", Digest: &contracts.Digest{Every: 60}}, "Mars/Olympus", "digest:c:2026-03-04T11:00:00Z", true},
	} {
		end, err := hold.DigestEnd(now, test.row.Digest, test.zone)
		if got := hold.DigestRow(&test.row, end); got.EventID != test.id || !got.Collected || !got.NotBefore.Equal(end) || (err != nil) != test.bad {
			t.Errorf("%s: %+v: %v", name, got, err)
		}
	}
	long := contracts.Notification{Template: strings.Repeat("t", contracts.MaxText), Digest: &contracts.Digest{Every: 60}}
	id := hold.DigestRow(&long, now).EventID
	check.That(t, len(id) <= 128, "an id of %d bytes", len(id))
}
