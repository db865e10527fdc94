package contracts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

const (
	// publishTry bounds one attempt to publish, so that a lost answer leaves time for another attempt.
	publishTry = 2 * time.Second

	firstPublishWait = 20 * time.Millisecond
	lastPublishWait  = time.Second
)

// PublisherConfig configures a [Publisher]. The zero value is ready to use.
type PublisherConfig struct {
	// Fingerprint distinguishes the events under one id, by the bodies of their messages. It lets readers who ignore some members, or
	// spellings, decide which events are the same. Defaults to [Event.Fingerprint].
	Fingerprint func(body []byte) (string, error)

	// Prepare is called with each message before it is published, for example to write trace context into its headers.
	// It must not change the body or the message id. Defaults to none.
	Prepare func(ctx context.Context, msg *nats.Msg)

	// Source is a URI reference to the system that publishes the events. Defaults to "/events".
	Source string

	// Stream is the stream that keeps the events. Defaults to StreamEvents.
	Stream string

	// Subject returns the subject of an event. An error refuses the event. Defaults to [Event.Subject].
	Subject func(Event) (string, error)

	// Timeout bounds the attempts to publish one event, if ctx does not end before. It must be less than the two minutes for which the stream
	// remembers ids, so that no event is stored twice. Defaults to 1 minute.
	Timeout time.Duration
}

// Publisher publishes each event once. It is safe for concurrent use.
type Publisher struct {
	cfg PublisherConfig
	js  jetstream.JetStream
}

// Published is the stream's acknowledgement of an event.
type Published struct {
	// Duplicate reports whether the stream already had the event, from an earlier call or an earlier attempt of this
	// one.
	Duplicate bool

	// Sequence is the sequence of the event in the stream.
	Sequence uint64
}

// NewPublisher returns a publisher. No round trip.
func NewPublisher(js jetstream.JetStream, cfg PublisherConfig) (*Publisher, error) {
	cfg.Source = cmp.Or(cfg.Source, "/events")
	cfg.Stream = cmp.Or(cfg.Stream, StreamEvents)
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	if cfg.Fingerprint == nil {
		cfg.Fingerprint = fingerprint
	}
	if cfg.Subject == nil {
		cfg.Subject = Event.Subject
	}
	var errs []error
	if js == nil {
		errs = append(errs, errors.New("contracts: NewPublisher: js is nil: want a jetstream.JetStream"))
	}
	if subject.CheckLiteral(cfg.Stream) != nil || strings.ContainsAny(cfg.Stream, `./\`) {
		errs = append(errs, fmt.Errorf("contracts: PublisherConfig.Stream is %.80q: want the name of a stream", cfg.Stream))
	}
	if cfg.Timeout < 0 || cfg.Timeout >= dedupWindow {
		errs = append(errs, fmt.Errorf("contracts: PublisherConfig.Timeout is %s: want less than %s", cfg.Timeout, dedupWindow))
	}
	if err := (CloudEvent{ID: "1", Source: cfg.Source, Type: CloudEventDomain}).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("contracts: PublisherConfig.Source is %.80q: %w", cfg.Source, err))
	}
	return &Publisher{cfg: cfg, js: js}, errors.Join(errs...)
}

// Publish publishes an event and returns when the stream has acknowledged it: it is then stored by the stream's
// replicas. Usually one round trip.
//
// The message id is the event's id, in every attempt and every call. For the two minutes in which the stream remembers
// the id it stores the event once, and Publish returns [ErrEventMismatch] for another event under the same id. After
// that, readers refuse the other event.
//
// The error is a [*ValidationError] for an invalid event, and a [*PublishError] otherwise. If its Unsure is true the
// event may be in the stream: call again with the same event. Publish returns at once, without another try, when the stream does not exist,
// does not take the subject, is full or sealed, when the server has no JetStream, and when the user may not publish.
func (p *Publisher) Publish(ctx context.Context, e Event) (Published, error) {
	msg, err := e.Msg(p.cfg.Source)
	if err != nil {
		return Published{}, err
	}
	if msg.Subject, err = p.cfg.Subject(e); err != nil {
		return Published{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	failed := PublishError{EventID: e.EventID, Subject: msg.Subject}
	for {
		failed.Attempts++
		done, err := p.try(ctx, msg)
		if err == nil {
			return done, nil
		}
		failed.Cause = err
		failed.Unsure = failed.Unsure || unsure(err)
		if final(err) {
			failed.Unsure = failed.Unsure && !errors.Is(err, ErrEventMismatch)
			return Published{}, &failed
		}
		if !retry.Backoff(ctx, failed.Attempts-1, firstPublishWait, lastPublishWait) {
			failed.Cause = errors.Join(context.Cause(ctx), err)
			return Published{}, &failed
		}
	}
}

// Msg returns the event as a NATS message in binary mode, under its own id, for a publisher whose own name is source. Make a new one for
// each attempt to publish it. The error is a [*ValidationError].
func (e Event) Msg(source string) (*nats.Msg, error) {
	data, err := Encode(e)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBody {
		return nil, &ValidationError{
			Type: "Event", Fields: []FieldError{{Problem: fmt.Sprintf("has %d bytes, at most %d", len(data), MaxBody)}}, cause: ErrTooLarge,
		}
	}
	to, err := e.Subject()
	if err != nil {
		return nil, err
	}
	header, err := CloudEvent{
		ID: e.EventID, Source: source, Type: CloudEventDomain, Time: e.OccurredAt, DataContentType: "application/json",
	}.Header()
	if err != nil { // such as an id with a control character, which is valid in a body but not in a header
		header = nats.Header{}
	}
	header[nats.MsgIdHdr] = []string{MsgID(e.EventID)}
	return &nats.Msg{Subject: to, Header: header, Data: data}, nil
}

func (p *Publisher) try(ctx context.Context, msg *nats.Msg) (Published, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTry)
	defer cancel()
	// The options of a publish write into the headers.
	one := &nats.Msg{Subject: msg.Subject, Header: maps.Clone(msg.Header), Data: msg.Data}
	if p.cfg.Prepare != nil {
		p.cfg.Prepare(ctx, one)
	}
	earlier := p.js.Conn().LastError()
	ack, err := p.js.PublishMsg(ctx, one, jetstream.WithExpectStream(p.cfg.Stream), jetstream.WithRetryAttempts(0))
	if err != nil {
		return Published{}, fmt.Errorf("publish to %s of stream %s: %w", msg.Subject, p.cfg.Stream, p.explain(ctx, msg.Subject, err, earlier))
	}
	if ack.Duplicate {
		if err := p.same(ctx, ack.Sequence, msg.Data); err != nil {
			return Published{}, err
		}
	}
	return Published{Duplicate: ack.Duplicate, Sequence: ack.Sequence}, nil
}

// permanentError is an error that another try would end in.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// explain returns the error of a try, as a permanentError with the reason if no try can succeed. It costs a round trip when nothing takes
// the subject: an election of the stream's leader looks like a stream that does not exist.
func (p *Publisher) explain(ctx context.Context, to string, err, earlier error) error {
	last := p.js.Conn().LastError()
	which, publish, ok := denied.Subject(last)
	why := "it cannot be sent"
	switch {
	case ok && publish && which == to && last != earlier: //nolint:errorlint // the server drops the message, and no answer comes
		why, err = "the user of this connection may not publish it", last
	case jsapi.IsFull(err), jsapi.IsRefused(err): // refused per subject
		why = "the stream is full and refuses new messages: raise its limits, or let it discard old ones"
	case jsapi.HasCode(err, jsapi.CodeStreamSealed):
		why = "the stream is sealed and never takes a message again: name another in PublisherConfig.Stream"
	case errors.Is(err, nats.ErrBadHeaderMsg):
		why = "PublisherConfig.Prepare set a header with a name that NATS does not take"
	case jsapi.IsPermanent(err):
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		stream, cause := p.js.Stream(ctx, p.cfg.Stream)
		enabled, _ := p.js.Conn().ConnectedServerJetStream()
		switch {
		case errors.Is(cause, nats.ErrNoResponders) && !enabled && p.js.Conn().IsConnected(): // else the account may not ask for the stream
			why, err = "no server has JetStream", jetstream.ErrJetStreamNotEnabled
		case errors.Is(cause, jetstream.ErrStreamNotFound):
			why, err = "create the stream (expediter apply), or name another in PublisherConfig.Stream", cause
		case cause != nil, slices.ContainsFunc(stream.CachedInfo().Config.Subjects, func(p string) bool { return subject.Matches(p, to) }):
			return err
		default:
			why = fmt.Sprintf("the stream takes only %q", stream.CachedInfo().Config.Subjects)
		}
	default:
		return err
	}
	return &permanentError{fmt.Errorf("%s: %w", why, err)}
}

// Compare returns [ErrEventMismatch] when the stream has another event than e at a sequence: for one who publishes without Publish, and was
// told there that the stream has the id already. One round trip.
func (p *Publisher) Compare(ctx context.Context, sequence uint64, e Event) error {
	data, err := Encode(e)
	if err != nil {
		return err
	}
	return p.same(ctx, sequence, data)
}

// same reads the stream's message at the sequence, and returns ErrEventMismatch when it has another event than a body.
func (p *Publisher) same(ctx context.Context, sequence uint64, body []byte) error {
	there, ok, err := p.read(ctx, sequence)
	if errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("the stream has an event under the id, at %d, and this account may not read whether it is the same: %w", sequence, err)
	}
	if err == nil && !ok {
		err = jetstream.ErrMsgNotFound // at a replica that is behind
	}
	if err != nil {
		return fmt.Errorf("read the event that the stream has under the id, at %d: %w", sequence, err)
	}
	known, err := p.cfg.Fingerprint(there.Data)
	if err != nil {
		return fmt.Errorf("%w: at %d there is no event at all: %w", ErrEventMismatch, sequence, err)
	}
	mark, err := p.cfg.Fingerprint(body)
	if err == nil && known != mark {
		err = fmt.Errorf("%w, at %d", ErrEventMismatch, sequence)
	}
	return err
}

// fingerprint returns the fingerprint of an event by its body.
func fingerprint(body []byte) (string, error) {
	e, err := Decode[Event](body)
	if err != nil {
		return "", err
	}
	return e.Fingerprint()
}

// read reads a message from any replica, which takes no place in the server's queue of API requests. A stream that replicas do not answer
// for (AllowDirect is false) is read at its leader.
func (p *Publisher) read(ctx context.Context, sequence uint64) (m jsapi.Message, ok bool, err error) {
	api := jsapi.New(p.js, publishTry)
	reply, err := p.js.Conn().RequestWithContext(ctx, api.Prefix+"DIRECT.GET."+p.cfg.Stream, fmt.Appendf(nil, `{"seq":%d}`, sequence))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return api.Get(ctx, p.cfg.Stream, jsapi.Query{Sequence: sequence})
	case err != nil:
		return m, false, err
	}
	return directget.Answer(reply)
}

// final reports whether another try would end in the same error.
func final(err error) bool {
	_, permanent := errors.AsType[*permanentError](err)
	return permanent || errors.Is(err, ErrEventMismatch) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// unsure reports whether the event may be in the stream in spite of an error: there was no answer, or a refusal by a
// leader that may have been deposed.
func unsure(err error) bool {
	return !slices.ContainsFunc([]error{
		jetstream.ErrJetStreamNotEnabled, jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound,
		nats.ErrBadHeaderMsg, nats.ErrInvalidMsg, nats.ErrMaxPayload, nats.ErrNoResponders, nats.ErrPermissionViolation,
	}, func(unsent error) bool { return errors.Is(err, unsent) })
}

// Fingerprint returns a hash that distinguishes events under the same id: the SHA-256, in hexadecimal digits, of the
// event in canonical form. All fields and members of Extra count but occurred_at, which libraries of senders set at each publish. Order
// and white space do not count, and the spellings of one double, such as 4 and 4.0, are one number; whole numbers count to the last digit.
// An event without a canonical form, such as one with 1e400 or half a character in its payload, counts as it is written. It fails for
// an event that [Decode] refuses, such as one whose payload has a name twice.
func (e Event) Fingerprint() (string, error) {
	e.OccurredAt = time.Time{}
	mark, err := flight.Work{Process: "notifier.event", Version: "1", Inputs: e}.Key()
	if errors.Is(err, flight.ErrInvalidInputs) {
		var data []byte
		if data, err = marshal(e); err == nil {
			_, err = Decode[Event](data)
		}
		mark = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	if err != nil {
		return "", fmt.Errorf("%w: fingerprint: %w", ErrInvalid, err)
	}
	return mark, nil
}
