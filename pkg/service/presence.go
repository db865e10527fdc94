package service

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

// Each instance of a service has a place: the record ready.<service>-<n> in the bucket jobs, which it rewrites every 2 seconds. An
// instance that is stopped leaves its place vacant. One that dies leaves its record there, which does not expire, so the instance is
// missed until another one takes over its place, or an operator declares the place vacant. No record is removed: there are as many
// places as instances have run at the same time.
//
// No two clocks are compared. An instance is alive if it answers a ping, or if its record changes between two looks of one observer. It
// takes both: an instance that answers may be unable to write, for instance to a full disk, and one that writes may be unable to answer
// because the observer has no permission to ask.
const (
	renewEvery = 2 * time.Second
	maxPlaces  = 64 // further instances have no place and are not missed
	vacant     = "vacant"

	// An instance without a sign of life is missing after missingAfter if it has answered this observer before, else after silentAfter.
	missingAfter = 3500 * time.Millisecond
	silentAfter  = 8 * time.Second

	// neverAfter is the age of its stream from which a service that has no place is missed.
	neverAfter = 5 * time.Minute

	// metaInstance is the member of a ping's answer with the id of the instance.
	metaInstance = "instance"
)

// presence keeps the place of an instance.
type presence struct {
	attendance *Attendance
	js         jetstream.JetStream
	left       atomic.Bool // the instance is being stopped on purpose
	place      place       // without a subject for none
	since      time.Time   // when it began to look for a place
}

func newPresence(js jetstream.JetStream, name, version string) *presence {
	host, _ := os.Hostname() // it has none then
	self := place{ID: nuid.Next(), Host: host, Version: version}
	return &presence{attendance: Attend(js, name), js: js, place: self, since: time.Now()}
}

// run keeps the place until ctx ends.
func (p *presence) run(ctx context.Context) error {
	p.renew(ctx)
	pause.Every(ctx, renewEvery, p.renew)
	if p.left.Load() && p.js.Conn().IsConnected() {
		p.renew(context.WithoutCancel(ctx))
	}
	return nil
}

// renew rewrites the record, in another place if the instance has none, or has lost it while it was frozen.
func (p *presence) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	data := []byte(vacant)
	if !p.left.Load() {
		data, _ = json.Marshal(p.place) //nolint:errchkjson // strings only
	}
	if !p.write(ctx, data) && p.find(ctx) {
		p.write(ctx, data)
	}
}

// find finds the instance's own place, or chooses the one that was left last, or a new one. It reports false if there is none yet: it
// takes some seconds to know which other instances are alive, and the one that this instance replaces may have died a moment ago.
func (p *presence) find(ctx context.Context) bool {
	if p.place.subject != "" {
		p.place.subject, p.since = "", time.Now()
	}
	if err := p.attendance.look(ctx, nil); err != nil {
		p.since = time.Now()
		return false
	}
	all, taken := p.attendance.places, false
	free := place{subject: placeSubject(p.attendance.service, len(all))}
	for _, other := range all {
		switch {
		case other.ID == p.place.ID: // the answer to a write was lost
			p.place.subject, p.place.revision = other.subject, other.revision
			return true
		case other.ID != "" && !other.missing:
			taken = true
		case other.revision > free.revision:
			free = other
		}
	}
	if p.left.Load() || taken && time.Since(p.since) < silentAfter+renewEvery || free.revision == 0 && len(all) == maxPlaces {
		return false
	}
	p.place.subject, p.place.revision = free.subject, free.revision
	return true
}

// write replaces the record of the place. It reports false if the instance has no place, or no longer has this one. A write without an
// answer may have succeeded.
func (p *presence) write(ctx context.Context, data []byte) bool {
	if p.place.subject == "" {
		return false
	}
	msg := nats.NewMsg(p.place.subject)
	msg.Data = data
	msg.Header.Set("KV-Operation", "DEL") // hides it from clients of the bucket
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(p.place.revision))
	if err == nil {
		p.place.revision = ack.Sequence
	}
	_, refused := kvrecord.RefusedAt(err)
	return !refused
}

func placeSubject(service string, n int) string {
	return "$KV." + contracts.BucketJobs + ".ready." + service + "-" + strconv.Itoa(n)
}

// place is a place of a service, as an observer knows it. A vacant one has no ID.
type place struct {
	ID      string `json:"id"`
	Host    string `json:"host,omitempty"`
	Version string `json:"version,omitempty"`

	alive, answered, missing bool      // in the last look; answered in any look
	seen, written            time.Time // the last sign of life by the observer's clock, and the record's time by the server's
	subject                  string
	revision                 uint64
}

// Attendance observes the instances of one service. Make it with [Attend]. Its method must not be called concurrently.
type Attendance struct {
	client  jsapi.Client
	conn    *nats.Conn
	looked  time.Time // zero after an error
	places  []place
	service string
}

// Attend returns the attendance of a service whose bucket jobs js reaches. No round trip.
func Attend(js jetstream.JetStream, service string) *Attendance {
	return &Attendance{client: jsapi.New(js, probeTimeout), conn: js.Conn(), service: service}
}

// Roll is the result of a look.
type Roll struct {
	// Problem describes which instances are missing, "" for none.
	Problem string

	// Gone reports whether instances are missing and none is left.
	Gone bool

	// Places are the subjects of the places whose instances are missing. A message "vacant" to each of them ends the search.
	Places []string

	// Unsure reports whether an instance has given no sign of life and is not missing yet: look again in 2 seconds.
	Unsure bool
}

// Look pings the instances, which takes at most half a second, and reads their records: one round trip each. streams is the age of the
// service's streams: a service that never came is a problem after 5 minutes. After an error nothing is known.
func (a *Attendance) Look(ctx context.Context, streams time.Duration) (r Roll, err error) {
	answered := a.ping(ctx)
	if err := a.look(ctx, answered); err != nil {
		return r, fmt.Errorf("read the places of the %s: %w", a.service, err)
	}
	if len(a.places)+len(answered) == 0 && streams > neverAfter {
		age := streams.Round(time.Minute)
		r.Problem = fmt.Sprintf("the %s never came: its streams were made %s ago, and no instance has run since", a.service, age)
		r.Places = []string{a.client.Target(placeSubject(a.service, 0))}
	}
	var last place
	here := 0
	for _, p := range a.places {
		delete(answered, p.ID)
		switch {
		case p.missing:
			if r.Places = append(r.Places, a.client.Target(p.subject)); last.revision < p.revision {
				last = p
			}
		case p.alive:
			here++
		case p.ID != "":
			r.Unsure = true
		}
	}
	// An instance without a place is about to take that of a missing one.
	n := len(r.Places) - len(answered)
	if here += len(answered); last.ID == "" || n <= 0 || here == 0 && r.Unsure {
		return r, nil
	}
	if r.Gone = here == 0; r.Gone {
		r.Problem = fmt.Sprintf("the %s is gone: no instance answers, and %d did not stop properly", a.service, n)
	} else {
		r.Problem = fmt.Sprintf("%d of %d instances of the %s do not answer", n, n+here, a.service)
	}
	r.Problem += fmt.Sprintf(", last seen at %s on host %q with version %q", last.written.UTC().Format(time.RFC3339), last.Host, last.Version)
	return r, nil
}

// ping returns the ids of the instances that answer.
func (a *Attendance) ping(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	subject := micro.APIPrefix + ".PING." + a.service
	if a.client.Prefix != jetstream.DefaultAPIPrefix { // leads to the account of the service: no other one can answer
		subject = a.client.Prefix + subject
	}
	answers, _ := inspect.Gather(ctx, a.conn, subject, 250*time.Millisecond) // there may be none, or no permission
	ids := map[string]bool{}
	for _, data := range answers {
		var answer micro.Ping
		if json.Unmarshal(data, &answer) == nil && answer.Metadata[metaInstance] != "" {
			ids[answer.Metadata[metaInstance]] = true
		}
	}
	return ids
}

// look reads the records of all places. answered are the instances that have just answered.
func (a *Attendance) look(ctx context.Context, answered map[string]bool) error {
	now, looked, before := time.Now(), a.looked, a.places
	if now.Sub(looked) > silentAfter { // an instance may have been unable to write in the meantime
		before = nil
	}
	a.places, a.looked = nil, time.Time{}
	places := make([]place, 0, len(before))
	for n := range maxPlaces {
		subject := placeSubject(a.service, n)
		m, ok, err := a.client.Get(ctx, "KV_"+contracts.BucketJobs, jsapi.Query{LastBySubject: subject})
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		p := place{seen: now, subject: subject, revision: m.Sequence, written: m.Time}
		_ = json.Unmarshal(m.Data, &p) // a vacant one is no JSON
		p.Host, p.Version = p.Host[:min(len(p.Host), 64)], p.Version[:min(len(p.Version), 64)]
		if n < len(before) {
			was := before[n]
			if p.seen, p.alive = was.seen, was.revision != p.revision; p.alive {
				p.seen = looked // or later
			}
			p.answered = was.answered && was.ID == p.ID
		}
		if answered[p.ID] {
			p.seen, p.alive, p.answered = now, true, true
		}
		silent := now.Sub(p.seen)
		p.missing = p.ID != "" && !p.alive && (silent >= silentAfter || p.answered && silent >= missingAfter)
		places = append(places, p)
	}
	a.places, a.looked = places, now
	return nil
}

// WorksOn returns the service that takes the jobs or events of a stream, "" for none.
func WorksOn(stream string) string {
	for _, c := range contracts.Consumers(contracts.AssetOptions{}) {
		if c.Stream == stream && !strings.Contains(c.Config.Durable, "-") { // the service's first consumer has its name
			return c.Config.Durable
		}
	}
	return ""
}
