// Package audit keeps the actions of operators in the stream AUDIT, and those of other callers of a service in AUDIT_USERS, so that no
// number of these pushes out records of operators. A record has the caller, the action, its target, its time, the number
// of things changed, and the outcome.
//
// There is no action without a record: [Log.Do] writes that the action begins, and acts when the leader has acknowledged that message. The
// outcome is a second message with the same id. [List] returns both as one record. Messages are only added, and never replaced.
//
// A record has no secret, no address, no payload and no text of an error. The source of a record is a token of its subject. Each account
// has its own permission for it, so a service cannot write in the name of another.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// Actors of requests that name no caller.
const (
	// ActorAnyone is the caller of a service that asks for no keys.
	ActorAnyone = "anyone"

	// ActorNATS is a requester of a micro service that the server has admitted and the service does not know. The name in the requester's
	// header ActorHeader follows after a slash, as in "nats/ada".
	ActorNATS = "nats"
)

// ActorHeader is the header in which a requester of a micro service names the person for whom it asks. The server has admitted the
// requester; the name is not checked.
const ActorHeader = "Expediter-Actor"

// actorKey is the key of the name in a context.
type actorKey struct{}

// For returns a context of a request over NATS for the person whom the requester names.
func For(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, actorKey{}, name)
}

const (
	// MaxList is the largest number of records that [List] returns.
	MaxList = 1000

	writeTime = 10 * time.Second // of each message, with repetitions under one id: an election lasts up to nine
	listTime  = 10 * time.Second // for the latest records, if the caller sets no bound
	maxText   = 512              // bytes of an actor or a target

	// maxCounted is the number of callers and actions whose refused requests are counted at a time.
	maxCounted = 10_000
)

// ErrUnavailable is returned for an action that was not begun because its record could not be written.
var ErrUnavailable = errors.New("audit: the record cannot be written, so nothing was done; " +
	"are the streams AUDIT and AUDIT_USERS there? (expediter apply --services lock makes them)")

// Outcome is the outcome of an action.
type Outcome string

// The outcomes.
const (
	// Begun is the outcome of an action that is under way, or whose end is unknown because its process died.
	Begun Outcome = "begun"

	// Done is the outcome of an action without an error.
	Done Outcome = "done"

	// Failed is the outcome of an action with an error. Part of it may be done, see Count.
	Failed Outcome = "failed"

	// Refused is the outcome of requests beyond a bound. Count is the number of them so far, see [Log.Refused].
	Refused Outcome = "refused"
)

// Record is one action.
type Record struct {
	// ID is the id of the action.
	ID string `json:"id"`

	// At is the time at which the action began.
	At time.Time `json:"at"`

	// Source is the program that took the action: the name of a service, or cli.
	Source string `json:"source"`

	// Actor is the party that asked for the action: the name of a key, the user of the NATS server, ActorAnyone or ActorNATS.
	Actor string `json:"actor"`

	// Action is the verb, such as cancel.
	Action string `json:"action"`

	// Target is the thing that the action changed, such as a job.
	Target string `json:"target"`

	// Count is the number of things that the action changed.
	Count int `json:"count"`

	// Outcome is the outcome of the action.
	Outcome Outcome `json:"outcome"`
}

// Config describes a Log. All but Actor is required.
type Config struct {
	// Actor names the party behind a context. Defaults to the caller of the request, see [access.From].
	Actor func(context.Context) string

	// JetStream writes the records.
	JetStream jetstream.Publisher

	// Logger gets the outcomes that could not be written.
	Logger *slog.Logger

	// Source is the source of the actions: the name of the service.
	Source string
}

// Log writes records. It is safe for concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	refused map[string]int // the requests since counting began, by caller and action
	since   time.Time
}

// New returns a Log. No round trip.
func New(cfg Config) *Log {
	if cfg.Actor == nil {
		cfg.Actor = caller
	}
	return &Log{cfg: cfg}
}

// caller names the caller of a request.
func caller(ctx context.Context) string {
	c := access.From(ctx)
	switch {
	case c.Name != "":
		return c.Name
	case c.May(access.Operate):
		return ActorAnyone
	}
	if name, ok := ctx.Value(actorKey{}).(string); ok {
		return ActorNATS + "/" + name
	}
	return ActorNATS
}

// Do writes that the action begins, calls act, and then writes the outcome and the number of things changed. The error is that of act, or
// matches [ErrUnavailable] when act was not called. An outcome that cannot be written is logged; the record then stays begun. Two round
// trips.
func (l *Log) Do(ctx context.Context, action, target string, act func(context.Context) (int, error)) error {
	r := l.record(ctx, action, target, Begun)
	if err := l.write(ctx, r); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, action, err)
	}
	count, err := act(ctx)
	r.Count, r.Outcome = count, Done
	if err != nil {
		r.Outcome = Failed
	}
	if unwritten := l.write(context.WithoutCancel(ctx), r); unwritten != nil {
		l.cfg.Logger.WarnContext(ctx, "audit: the end of an action is not written",
			"id", r.ID, "action", action, "count", count, "error", unwritten)
	}
	return err
}

// Refused counts a request that was refused because of a bound. The first, the tenth, the hundredth and so on of a caller and an action
// in an hour has a record with their number, so refused requests fill no stream. Each process counts for itself.
func (l *Log) Refused(ctx context.Context, action, target string) {
	r := l.record(ctx, action, target, Refused)
	l.mu.Lock()
	if r.At.Sub(l.since) >= time.Hour || len(l.refused) >= maxCounted {
		l.refused, l.since = map[string]int{}, r.At
	}
	l.refused[r.Actor+" "+action]++
	r.Count = l.refused[r.Actor+" "+action]
	l.mu.Unlock()
	n := r.Count
	for n%10 == 0 {
		n /= 10
	}
	if n > 1 {
		return
	}
	if err := l.write(ctx, r); err != nil {
		l.cfg.Logger.WarnContext(ctx, "audit: refused requests are not written", "action", action, "count", r.Count, "error", err)
	}
}

func (l *Log) record(ctx context.Context, action, target string, outcome Outcome) Record {
	return Record{
		ID: nuid.Next(), At: time.Now().UTC(), Source: l.cfg.Source, Actor: cut(l.cfg.Actor(ctx)), Action: action, Target: cut(target),
		Outcome: outcome,
	}
}

// write writes one of the messages of a record. The id of the message is made of the record's id and the outcome, so that a second
// attempt after a lost answer adds no message.
func (l *Log) write(ctx context.Context, r Record) error {
	stream := contracts.StreamAudit
	to, err := subject.Join("audit", subject.Name("source", r.Source), subject.Name("class", "operators"))
	if c := access.From(ctx); len(c.Scopes) > 0 && !c.IsOperator() {
		stream = contracts.StreamAuditUsers
		to, err = subject.Join("audit", subject.Name("source", r.Source), subject.Name("class", "users"), subject.Name("action", r.Action))
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return jsapi.Retry(ctx, writeTime, func(ctx context.Context) error {
		msg := nats.NewMsg(to)
		msg.Data = data
		id := r.ID + "." + string(r.Outcome)
		_, err := l.cfg.JetStream.PublishMsg(ctx, msg, jetstream.WithMsgID(id), jetstream.WithExpectStream(stream))
		if jsapi.IsInProcess(err) { // the message whose answer was lost
			return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
		}
		return err
	})
}

// User returns the pseudonym under which records name a user: the first 16 digits of the SHA-256 of the id. "" stays "". Records are found
// by a known id, but do not contain the id.
func User(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// cut bounds a text. Two of them fit into a message of AUDIT, also where JSON writes six bytes for each of theirs.
func cut(text string) string {
	if encoded, err := json.Marshal(text); err != nil || len(encoded) > 3*maxText {
		return redact.Shorten(text, maxText/4)
	}
	return redact.Shorten(text, maxText)
}

// List returns the latest records of operators, at most limit, the latest first. It reads two messages for each, from a replica that may
// lag behind. Two round trips, for 10 seconds at most.
func List(ctx context.Context, js jetstream.JetStream, limit int) ([]Record, error) {
	return list(ctx, js, contracts.StreamAudit, limit)
}

// ListUsers is [List] for the records of other callers.
func ListUsers(ctx context.Context, js jetstream.JetStream, limit int) ([]Record, error) {
	return list(ctx, js, contracts.StreamAuditUsers, limit)
}

func list(ctx context.Context, js jetstream.JetStream, name string, limit int) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	limit = min(limit, MaxList)
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("audit: stream %s: %w", name, err)
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 {
		return nil, nil
	}
	getter, err := directget.New(js.Conn(), jsapi.Prefix(js), nil)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer getter.Close()
	from := max(state.FirstSeq, state.LastSeq-min(state.LastSeq, 2*uint64(max(limit, 1)))+1)
	messages, _, err := getter.From(ctx, name, from, 2*MaxList) // each is small
	if err != nil {
		return nil, fmt.Errorf("audit: read %s: %w", name, err)
	}
	var records []Record
	index := map[string]int{}
	for _, msg := range messages {
		r := parse(msg)
		id := r.Source + "/" + r.ID
		if at, ok := index[id]; ok {
			if begun := &records[at]; begun.Outcome == Begun { // a record that has ended does not change
				begun.Count, begun.Outcome = r.Count, r.Outcome
			}
			continue
		}
		index[id] = len(records)
		records = append(records, r)
	}
	slices.Reverse(records)
	return records[:min(len(records), limit)], nil
}

// parse reads a message. The source comes from its subject, whatever is in its body.
func parse(msg jsapi.Message) (r Record) {
	if err := json.Unmarshal(msg.Data, &r); err != nil || r.ID == "" {
		r = Record{ID: msg.Header.Get(jetstream.MsgIDHeader), Target: fmt.Sprintf("unreadable record of %d bytes", len(msg.Data))}
	}
	r.Source = strings.Split(msg.Subject, ".")[1]
	return r
}
