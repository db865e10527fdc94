package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// claimSQL locks lanes that have rows to publish, beginning at lane $1. It reads the index once for each lane; with EXISTS the planner may
// scan the table instead. A later statement reads the rows: a statement that both locks and reads would read the rows as they were before
// it had the locks.
const claimSQL = `SELECT l.lane FROM event_outbox_lane l
	WHERE (SELECT o.id FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'pending'
		AND (o.retry_at IS NULL OR o.retry_at <= now()) ORDER BY o.id LIMIT 1) IS NOT NULL
	ORDER BY (l.lane - $1) & 63 LIMIT $2 FOR UPDATE SKIP LOCKED`

// readSQL reads the first rows of each of the lanes $1, up to $2 rows and $3 bytes of each. It leaves out rows whose key waits
// for a refused row.
const readSQL = `SELECT ` + rowValues + ` FROM unnest($1::smallint[]) AS wanted(wanted_lane) CROSS JOIN LATERAL (
		SELECT ` + rowColumns + `, sum(least(bytes, $4)) OVER (ORDER BY id) - least(bytes, $4) AS before FROM (
			SELECT ` + rowColumns + ` FROM event_outbox o WHERE o.lane = wanted_lane AND o.state = 'pending'
				AND NOT EXISTS (SELECT FROM event_outbox b WHERE b.lane = wanted_lane AND b.state = 'pending' AND b.retry_at > now()
					AND (b.id = o.id OR b.ordering_key = o.ordering_key AND b.ordering_key <> '') OFFSET 0)
			ORDER BY o.id LIMIT $2) front) bounded
	WHERE before < $3 ORDER BY id`

// waitingSQL returns whether there are rows to publish, which are then in lanes that other batches hold, and the number of seconds until
// the next refused row may be tried again.
const waitingSQL = `SELECT EXISTS (SELECT FROM event_outbox_lane l WHERE (SELECT o.id FROM event_outbox o WHERE o.lane = l.lane
		AND o.state = 'pending' AND (o.retry_at IS NULL OR o.retry_at <= now()) ORDER BY o.id LIMIT 1) IS NOT NULL),
	(SELECT extract(epoch FROM min(retry_at) - now())::float8 FROM event_outbox
		WHERE state = 'pending' AND retry_at > now())`

// begin starts a transaction that Postgres ends when this process is silent for the lease, so that another relay gets the lanes.
// All statements of a relay use an index. The planner's statistics are old for a table whose rows come and go. A scan of the whole table
// in each batch would make the time to drain it grow with the square of its size.
func (r *Relay) begin(ctx context.Context) (pgx.Tx, error) { //nolint:ireturn // pgx returns an interface
	tx, err := r.cfg.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d; "+
			"SET LOCAL enable_seqscan = off; SET LOCAL jit = off",
		r.cfg.lease().Milliseconds())})
	if err != nil {
		return nil, fmt.Errorf("outbox: begin: %w", err)
	}
	return tx, nil
}

// claim locks lanes that have rows, and reads the first rows of each lane.
func (r *Relay) claim(ctx context.Context, tx pgx.Tx, from int) (claimed []int16, rows []*row, err error) {
	answer, err := tx.Query(ctx, claimSQL, from, lanesAtOnce)
	if err == nil {
		claimed, err = pgx.CollectRows(answer, pgx.RowTo[int16])
	}
	if err != nil || len(claimed) == 0 {
		return nil, nil, wrap("claim lanes", err)
	}
	each := max(r.cfg.BatchSize/len(claimed), 1)
	answer, err = tx.Query(ctx, readSQL, claimed, each, batchBytes/len(claimed), maxBytes)
	if err == nil {
		rows, err = pgx.CollectRows(answer, pgx.RowToAddrOfStructByPos[row])
	}
	return claimed, rows, wrap("read rows", err)
}

// idle returns the time for which a batch that found no rows waits before it looks again, unless it is woken.
func (r *Relay) idle(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.answer)
	defer cancel()
	tx, err := r.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer r.abandon(ctx, tx)
	var busy bool
	var retry *float64
	if err := tx.QueryRow(ctx, waitingSQL).Scan(&busy, &retry); err != nil {
		return 0, wrap("look for rows", err)
	}
	wait := r.cfg.Poll
	if retry != nil {
		wait = min(wait, max(time.Duration(*retry*float64(time.Second)), minBackoff))
	}
	if busy { // another batch holds the lanes and publishes their rows, unless its process dies
		wait = min(wait, time.Second)
	}
	return jitter(wait), nil
}

// abandon ends a transaction that failed.
func (r *Relay) abandon(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.answer)
	defer cancel()
	tx.Rollback(ctx) //nolint:errcheck,gosec // an error means that the connection is closed, which ends the locks
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", doing, err)
}

// row is a row of the table.
type row struct {
	ID            int64
	Lane          int16
	Bytes         int
	Attempts      int
	OrderingKey   string
	EventID       string
	EventType     string
	AggregateType string
	AggregateID   string
	RecipientType string
	RestaurantID  []byte
	UserID        string
	OccurredAt    *time.Time
	NotBefore     *time.Time
	Payload       []byte
	Recipients    []byte
	Headers       []byte
}

// rowColumns are the columns of a row, in its order. rowValues are the expressions that are read into it: the large columns
// are NULL where the row is too large to be published.
const (
	smallColumns = `id, lane, bytes, attempts, ordering_key, event_id, event_type, aggregate_type, aggregate_id,
	recipient_type, `
	rowColumns = smallColumns + `restaurant_id, user_id, occurred_at, not_before, payload, recipients, headers`
	rowValues  = smallColumns + `convert_to(restaurant_id::text, 'UTF8'), user_id, occurred_at, not_before,
	CASE WHEN bytes <= $4 THEN convert_to(payload::text, 'UTF8') END,
	CASE WHEN bytes <= $4 THEN convert_to(recipients::text, 'UTF8') END,
	CASE WHEN bytes <= $4 THEN convert_to(headers::text, 'UTF8') END`
)

// message returns the message of the row. An error means that the row can never be published.
func (r *row) message(stream string) (*nats.Msg, error) {
	event, err := r.event()
	if err != nil {
		return nil, err
	}
	subject, err := contracts.EventSubject(event.AggregateType, event.EventType)
	if err != nil {
		return nil, err
	}
	data, err := contracts.Encode(event)
	if err != nil {
		return nil, err
	}
	header, err := contracts.CloudEvent{
		ID: event.EventID, Source: "/events", Type: contracts.CloudEventDomain, Time: event.OccurredAt, DataContentType: "application/json",
	}.Header()
	if err != nil { // such as an id with a control character, which is valid in a body but not in a header
		header = nats.Header{}
	}
	if err := r.addHeaders(header); err != nil {
		return nil, err
	}
	header[nats.MsgIdHdr], header[nats.ExpectedStreamHdr] = []string{contracts.DomainEventMsgID(r.EventID)}, []string{stream}
	return &nats.Msg{Subject: subject, Header: header, Data: data}, nil
}

// event returns the event of the columns.
func (r *row) event() (contracts.Event, error) {
	if r.Bytes > maxBytes {
		return contracts.Event{}, fmt.Errorf("%d bytes are too many, at most %d", r.Bytes, maxBytes)
	}
	event := contracts.Event{
		EventID: r.EventID, EventType: r.EventType, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
		RecipientType: contracts.RecipientType(r.RecipientType), RestaurantID: r.RestaurantID, UserID: r.UserID, Payload: r.Payload,
	}
	if r.OccurredAt != nil {
		event.OccurredAt = r.OccurredAt.UTC()
	}
	if r.NotBefore != nil {
		event.NotBefore = r.NotBefore.UTC()
	}
	if len(r.Recipients) > 0 {
		if err := json.Unmarshal(r.Recipients, &event.Recipients); err != nil {
			return contracts.Event{}, fmt.Errorf("recipients: %w", err)
		}
	}
	return event, event.Validate()
}

// addHeaders adds the headers of the application.
func (r *row) addHeaders(header nats.Header) error {
	if len(r.Headers) == 0 {
		return nil
	}
	var headers map[string]string
	if err := json.Unmarshal(r.Headers, &headers); err != nil {
		return fmt.Errorf("headers: want an object of strings: %w", err)
	}
	if err := checkHeaders(headers); err != nil {
		return err
	}
	for name, value := range headers {
		header[name] = []string{value}
	}
	return nil
}

// checkHeaders returns an error for headers that would break the message, or on which the server would act.
func checkHeaders(headers map[string]string) error {
	for name, value := range headers {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return fmt.Errorf("header %.80q: want a name of printable ASCII without ':'", name)
		}
		if strings.HasPrefix(strings.ToLower(name), "nats-") {
			return fmt.Errorf("header %.80q: names that start with Nats- are the server's", name)
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("header %.80q: its value has a line break", name)
		}
	}
	return nil
}
