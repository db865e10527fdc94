package contracts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

const (
	// publishTry bounds one try to publish, so that one lost answer leaves time for others.
	publishTry = 2 * time.Second

	firstPublishWait = 20 * time.Millisecond
	lastPublishWait  = time.Second
)

// PublisherConfig says how events are published. The zero value is ready to use.
type PublisherConfig struct {
	// Prepare is called with each message before it is published, such as to write trace context into its headers. It
	// must leave the body and the message id alone. Defaults to nothing.
	Prepare func(ctx context.Context, msg *nats.Msg)

	// Source says who tells the events, a URI reference. Defaults to "/events".
	Source string

	// Stream keeps the events. Defaults to StreamEvents.
	Stream string

	// Timeout bounds the tries to publish one event, when ctx does not end before. It is less than the two minutes for
	// which the stream remembers ids, so that no try is stored twice. Defaults to 1 minute.
	Timeout time.Duration
}

// Publisher publishes events, each once. It may be used by many goroutines.
type Publisher struct {
	cfg PublisherConfig
	js  jetstream.JetStream

	mu     sync.Mutex // guards stream
	stream jetstream.Stream
}

// Published is what the stream said of an event.
type Published struct {
	// Duplicate says that the stream had the event, from an earlier call or an earlier try of this one.
	Duplicate bool

	// Sequence is where the stream has it.
	Sequence uint64
}

// NewPublisher returns a publisher. It asks the server nothing.
func NewPublisher(js jetstream.JetStream, cfg PublisherConfig) (*Publisher, error) {
	cfg.Source = cmp.Or(cfg.Source, "/events")
	cfg.Stream = cmp.Or(cfg.Stream, StreamEvents)
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	var errs []error
	if cfg.Timeout < 0 || cfg.Timeout >= dedupWindow {
		errs = append(errs, fmt.Errorf("contracts: PublisherConfig.Timeout is %s: want less than %s", cfg.Timeout, dedupWindow))
	}
	if err := (CloudEvent{ID: "1", Source: cfg.Source, Type: CloudEventDomain}).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("contracts: PublisherConfig.Source is %.80q: %w", cfg.Source, err))
	}
	return &Publisher{cfg: cfg, js: js}, errors.Join(errs...)
}

// Publish puts an event into the stream, and returns when the stream has acknowledged it: it is kept then, by as many
// servers as the stream is set to. One round trip, as a rule.
//
// The id of the event is the message's, in every try and every call: while the stream remembers it, two minutes, it takes
// the event once, however often it is published, and another event under the same id is [ErrEventMismatch]. Later ones
// are refused by whoever reads them.
//
// The error is a [*ValidationError] for an event that is none, and a [*PublishError] otherwise. One that is unsure says
// that the event may be in the stream: call again with the same event.
func (p *Publisher) Publish(ctx context.Context, e Event) (Published, error) {
	subject, msg, mark, err := p.message(e)
	if err != nil {
		return Published{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	failed := PublishError{EventID: e.EventID, Subject: subject}
	for wait := firstPublishWait; ; wait = min(2*wait, lastPublishWait) {
		failed.Attempts++
		done, err := p.try(ctx, msg, mark)
		if err == nil {
			return done, nil
		}
		failed.Cause = err
		failed.Unsure = failed.Unsure || unsure(err)
		if final(err) {
			failed.Unsure = failed.Unsure && !errors.Is(err, ErrEventMismatch)
			return Published{}, &failed
		}
		if !backoff.Pause(ctx, wait) {
			failed.Cause = errors.Join(context.Cause(ctx), err)
			return Published{}, &failed
		}
	}
}

// message returns the event as it travels: in binary mode, under its own id.
func (p *Publisher) message(e Event) (subject string, msg *nats.Msg, mark string, err error) {
	data, err := Encode(e)
	if err != nil {
		return "", nil, "", err
	}
	if len(data) > MaxBody {
		return "", nil, "", &ValidationError{
			Type: "Event", Fields: []FieldError{{Problem: fmt.Sprintf("has %d bytes, at most %d", len(data), MaxBody)}}, cause: ErrTooLarge,
		}
	}
	if mark, err = e.Fingerprint(); err != nil {
		return "", nil, "", err
	}
	if subject, err = EventSubject(e.AggregateType, e.EventType); err != nil {
		return "", nil, "", err
	}
	header, err := CloudEvent{
		ID: e.EventID, Source: p.cfg.Source, Type: CloudEventDomain, Time: e.OccurredAt, DataContentType: "application/json",
	}.Header()
	if err != nil { // such as an id with a control character, which the body can carry and a header cannot
		header = nats.Header{}
	}
	header[nats.MsgIdHdr] = []string{DomainEventMsgID(e.EventID)}
	return subject, &nats.Msg{Subject: subject, Header: header, Data: data}, mark, nil
}

func (p *Publisher) try(ctx context.Context, msg *nats.Msg, mark string) (Published, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTry)
	defer cancel()
	// The options of a publish write into the headers.
	one := &nats.Msg{Subject: msg.Subject, Header: maps.Clone(msg.Header), Data: msg.Data}
	if p.cfg.Prepare != nil {
		p.cfg.Prepare(ctx, one)
	}
	ack, err := p.js.PublishMsg(ctx, one, jetstream.WithExpectStream(p.cfg.Stream), jetstream.WithRetryAttempts(0))
	if err != nil {
		return Published{}, fmt.Errorf("publish: %w", err)
	}
	if ack.Duplicate {
		if err := p.same(ctx, ack.Sequence, mark); err != nil {
			return Published{}, err
		}
	}
	return Published{Duplicate: ack.Duplicate, Sequence: ack.Sequence}, nil
}

// same reads what the stream has under the id, which may be another event.
func (p *Publisher) same(ctx context.Context, sequence uint64, mark string) error {
	stream, err := p.bind(ctx)
	if err != nil {
		return err
	}
	there, err := stream.GetMsg(ctx, sequence)
	if err != nil {
		return fmt.Errorf("read the event that the stream has under the id, at %d: %w", sequence, err)
	}
	e, err := Decode[Event](there.Data)
	if err != nil {
		return fmt.Errorf("%w: at %d there is no event at all: %w", ErrEventMismatch, sequence, err)
	}
	known, err := e.Fingerprint()
	if err == nil && known != mark {
		err = fmt.Errorf("%w, at %d", ErrEventMismatch, sequence)
	}
	return err
}

func (p *Publisher) bind(ctx context.Context) (jetstream.Stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream == nil {
		stream, err := p.js.Stream(ctx, p.cfg.Stream)
		if err != nil {
			return nil, fmt.Errorf("open stream %s: %w", p.cfg.Stream, err)
		}
		p.stream = stream
	}
	return p.stream, nil
}

// final says of an error that trying again changes nothing.
func final(err error) bool {
	return errors.Is(err, ErrEventMismatch) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrInvalidMsg) ||
		jsapi.IsTooLarge(err) || jsapi.IsOtherStream(err)
}

// unsure says of an error that the event may be in the stream nevertheless: there was no answer, or it was a refusal by a
// leader that may have been on its way out.
func unsure(err error) bool {
	return !errors.Is(err, nats.ErrMaxPayload) && !errors.Is(err, nats.ErrInvalidMsg) &&
		!errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse)
}

// Fingerprint tells an event from another under the same id: the SHA-256, in hexadecimal digits, of the event in
// canonical form. Order, white space and the time zone of occurred_at do not count. It fails for a payload that has no
// canonical form, such as one with a name twice.
func (e Event) Fingerprint() (string, error) {
	e.OccurredAt = e.OccurredAt.UTC()
	mark, err := flight.Work{Process: "notifier.event", Version: "1", Inputs: e}.Key()
	if err != nil {
		return "", fmt.Errorf("contracts: fingerprint: %w", err)
	}
	return mark, nil
}
