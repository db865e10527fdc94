package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Each instance of a service has a place: the record ready.<service>-<n> in the bucket jobs, which it rewrites every 2 seconds. An
// instance that is stopped leaves its place vacant. One that dies leaves its record there, which does not expire, so the instance is
// missed until another one takes over its place, or an operator deletes the record. There are as many places as instances have run at the
// same time.
//
// The age of a record is the difference of two times of the servers' clocks, so clocks of other machines do not matter. It takes both an
// old record and no answer to a ping to miss an instance: one that answers may be unable to write, for instance to a full disk, and one
// that writes may be unable to answer because the observer has no permission to ask.
const (
	renewEvery = 2 * time.Second
	maxPlaces  = 64 // further instances have no place and are not missed

	// An instance that answers no ping is alive while its record is younger than freshFor, and missing when it is older than silentAfter,
	// unless the observer began less than silentAfter ago: instances may have to connect again, as it had.
	freshFor    = 3 * time.Second
	silentAfter = 8 * time.Second

	// neverAfter is the age of its stream from which a service that has no place is missed.
	neverAfter = 5 * time.Minute

	// metaInstance is the member of a ping's answer with the id of the instance.
	metaInstance = "instance"

	jobsStream = "KV_" + contracts.BucketJobs
)

// presence keeps the place of an instance.
type presence struct {
	attendance *Attendance
	js         jetstream.JetStream
	left       atomic.Bool // the instance is being stopped on purpose
	place      place       // without a key for none
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
	retry.Every(ctx, renewEvery, p.renew)
	if p.left.Load() && p.js.Conn().IsConnected() {
		p.renew(context.WithoutCancel(ctx))
	}
	return nil
}

// renew rewrites the record, in another place if the instance has none, or has lost it while it was frozen.
func (p *presence) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if !p.write(ctx) && p.find(ctx) {
		p.write(ctx)
	}
}

// find finds the instance's own place, or chooses the one that was left last, or a new one. It reports false if there is none yet: the
// instance that this one replaces may have died a moment ago, which shows after some seconds. One that is stopped before does not wait: it
// leaves the place that is silent for longest, and an instance that is alive there after all finds another one.
func (p *presence) find(ctx context.Context) bool {
	if p.place.key != "" {
		p.place.key, p.since = "", time.Now()
	}
	all, err := p.attendance.read(ctx)
	if err != nil {
		return false
	}
	free, oldest, taken := place{key: placeKey(p.attendance.service, len(all))}, place{}, false
	for _, other := range all {
		if other.ID == p.place.ID { // the answer to a write was lost
			p.place.key, p.place.revision = other.key, other.revision
			return true
		}
		if other.ID != "" && other.silent > max(freshFor, oldest.silent) {
			oldest = other
		}
		if other.ID != "" && other.silent < silentAfter {
			taken = true
		} else if other.revision > free.revision {
			free = other
		}
	}
	if p.left.Load() {
		free = oldest
	} else if taken && time.Since(p.since) < silentAfter+renewEvery || free.revision == 0 && len(all) == maxPlaces {
		return false
	}
	p.place.key, p.place.revision = free.key, free.revision
	return free.key != ""
}

// write replaces the record of the place. It reports false if the instance has no place, or no longer has this one. A write without an
// answer may have succeeded.
func (p *presence) write(ctx context.Context) bool {
	if p.place.key == "" {
		return false
	}
	msg := nats.NewMsg("$KV." + contracts.BucketJobs + "." + p.place.key)
	msg.Header.Set("KV-Operation", "DEL") // hides it from clients of the bucket
	if !p.left.Load() {
		msg.Data, _ = json.Marshal(p.place)
	}
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(p.place.revision))
	if err == nil {
		p.place.revision = ack.Sequence
	}
	_, refused := kvrecord.RefusedAt(err)
	return !refused
}

func placeKey(service string, n int) string { return "ready." + service + "-" + strconv.Itoa(n) }

// place is a place of a service. A vacant one has no ID.
type place struct {
	ID      string `json:"id"`
	Host    string `json:"host,omitempty"`
	Version string `json:"version,omitempty"`

	key      string
	revision uint64
	silent   time.Duration // the age of the record
	written  time.Time
}

// Attendance observes the instances of one service. Make it with [Attend]. Its method must not be called concurrently.
type Attendance struct {
	client  jsapi.Client
	conn    *nats.Conn
	looked  time.Time      // zero after an error
	missed  map[string]int // by ID: pings in a row that an instance did not answer
	service string
	since   time.Time // of the first look without a gap until the last one
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

	// Late reports whether all that are missing may be restarting.
	Late bool

	// Places are the keys in the bucket jobs of the instances that are missing. To delete them ends the search.
	Places []string

	// Unsure reports whether an instance has given no sign of life and may be alive: look again in 2 seconds.
	Unsure bool
}

// Look pings the instances, which takes at most half a second, and reads their records: one round trip each, and two. streams is the age of
// the service's streams: a service that never came is a problem after 5 minutes. After an error nothing is known. It finds nothing without
// the bucket, which is another problem.
func (a *Attendance) Look(ctx context.Context, streams time.Duration) (r Roll, err error) {
	answered := a.ping(ctx)
	places, err := a.read(ctx)
	now, looked := time.Now(), a.looked
	if a.looked = now; err != nil {
		if a.looked = (time.Time{}); jsapi.IsNoStream(err) {
			return r, nil
		}
		return r, fmt.Errorf("read the places of the %s: %w", a.service, err)
	}
	if now.Sub(looked) > 3*renewEvery {
		a.since = now
	}
	if len(places)+len(answered) == 0 && streams > neverAfter {
		age := streams.Round(time.Minute)
		r.Problem = fmt.Sprintf("the %s never came: its streams were made %s ago, and no instance has run since", a.service, age)
		r.Places = []string{placeKey(a.service, 0)}
	}
	var lost []place
	here, missed := len(answered), map[string]int{}
	for _, p := range places {
		missed[p.ID] = a.missed[p.ID] + 1
		switch {
		case p.ID == "":
		case answered[p.ID]:
			delete(answered, p.ID)
			delete(missed, p.ID)
		case p.silent < freshFor:
			here++
			r.Unsure = r.Unsure || now.Sub(a.since) < freshFor // it may have died a moment ago
		case p.silent < silentAfter, now.Sub(a.since) < silentAfter:
			if r.Unsure = true; missed[p.ID] > 1 && now.Sub(a.since) > silentAfter {
				lost = append(lost, p)
			}
		default:
			r.Places, lost = append(r.Places, p.key), append(lost, p)
		}
	}
	a.missed = missed
	// An instance without a place is about to take that of a missing one.
	n := len(lost) - len(answered)
	if n <= 0 || here == 0 && r.Unsure && len(lost) == len(r.Places) {
		return r, nil
	}
	r.Late = len(r.Places) == 0
	r.Gone = here == 0 && !r.Late
	r.Problem = a.tell(lost, n, here, r.Late)
	return r, nil
}

// tell says that n instances do not answer and here do. lost has the places of those that do not, late that they may be restarting.
func (a *Attendance) tell(lost []place, n, here int, late bool) string {
	text := fmt.Sprintf("%d of %d instances of the %s do not answer", n, n+here, a.service)
	if here == 0 {
		text = fmt.Sprintf("the %s is gone: no instance answers, and %d did not stop properly", a.service, n)
	}
	if late {
		text += fmt.Sprintf(", or may be restarting: it is an error after %s", silentAfter)
	}
	last := slices.MaxFunc(lost, func(a, b place) int { return cmp.Compare(a.revision, b.revision) })
	return text + fmt.Sprintf(", last seen at %s on host %q with version %q", last.written.UTC().Format(time.RFC3339), last.Host, last.Version)
}

// ping returns the ids of the instances that answer.
func (a *Attendance) ping(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	// Under a prefix it leads to the account of the service, and no other one can answer. There may be no answer, or no permission.
	answers, _ := inspect.Gather(ctx, a.conn, a.client.Target(micro.APIPrefix+".PING."+a.service), nil, 250*time.Millisecond)
	ids := map[string]bool{}
	for _, data := range answers {
		var answer micro.Ping
		if json.Unmarshal(data, &answer) == nil && answer.Metadata[metaInstance] != "" {
			ids[answer.Metadata[metaInstance]] = true
		}
	}
	return ids
}

// read reads the records of all places.
func (a *Attendance) read(ctx context.Context) (all []place, err error) {
	var info jetstream.StreamInfo
	if err := a.client.Ask(ctx, "STREAM.INFO."+jobsStream, nil, &info); err != nil {
		return nil, err
	}
	for n := range maxPlaces {
		p := place{key: placeKey(a.service, n)}
		m, ok, err := a.client.Get(ctx, jobsStream, jsapi.Query{LastBySubject: "$KV." + contracts.BucketJobs + "." + p.key})
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		_ = json.Unmarshal(m.Data, &p) // a vacant one is no JSON
		p.Host, p.Version = p.Host[:min(len(p.Host), 64)], p.Version[:min(len(p.Version), 64)]
		p.revision, p.silent, p.written = m.Sequence, info.TimeStamp.Sub(m.Time).Abs(), m.Time // a clock may be set back
		all = append(all, p)
	}
	return all, nil
}

// WorksOn returns the service that takes the jobs or events of a stream, "" for none.
func WorksOn(stream string) string {
	for _, c := range provision.Consumers(contracts.AssetOptions{}) {
		if c.Stream == stream && !strings.Contains(c.Config.Durable, "-") { // the service's first consumer has its name
			return c.Config.Durable
		}
	}
	return ""
}
