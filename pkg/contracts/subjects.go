package contracts

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/expediter-io/expediter/internal/subject"
)

// Filters that select every message of a stream.
const (
	// EnrichJobsSubjects selects all enrichment jobs.
	EnrichJobsSubjects = "jobs.enrich.>"
	// EventsSubjects selects all domain events.
	EventsSubjects = "events.>"
	// ImportJobsSubjects selects all import jobs.
	ImportJobsSubjects = "jobs.import.>"
	// DeadSubjects selects all dead letters.
	DeadSubjects = "dead.>"
)

// EnrichJobSubject is the subject of the job that looks a place up at a provider. Each place, provider and variant has its own, so that
// the stream holds each job once. The subject ends in the key of the entry.
func EnrichJobSubject(provider, placeID string) (string, error) {
	return subject.Join("jobs.enrich", subject.Name("provider", provider), subject.ID("placeId", placeID))
}

// ImportJobSubject is the subject of an import job in one of the priorities.
func ImportJobSubject(priority ImportPriority, jobID string) (string, error) {
	return subject.Join("jobs.import", subject.Name("priority", string(priority)), subject.ID("job_id", jobID))
}

// EventSubject is the subject of a domain event, such as events.RESTAURANT.RESERVATION_REQUESTED.
func EventSubject(aggregateType, eventType string) (string, error) {
	return subject.Join("events", subject.ID("aggregate_type", aggregateType), subject.ID("event_type", eventType))
}

// Subject is the EventSubject of the event.
func (e Event) Subject() (string, error) { return EventSubject(e.AggregateType, e.EventType) }

// NotifySendSubject is the subject of one row of a plan: this event, to this user, on this channel. Publishing to it with an expected last
// subject sequence of 0 is the unique constraint over the four.
func NotifySendSubject(channel string, recipient RecipientType, userID, eventID string) (string, error) {
	return subject.Join("notify.send", subject.Name("channel", channel), subject.Name("recipient_type", string(recipient)),
		subject.ID("user_id", userID), subject.ID("event_id", eventID))
}

// EnrichEntryKey is the key, in bucket enrich, of the entry in which the claim on a place becomes its result.
func EnrichEntryKey(provider, placeID string) (string, error) {
	return subject.Join("", subject.Name("provider", provider), subject.ID("placeId", placeID))
}

// InboxKey is the key, in bucket inbox, of one in-app notification of one user.
func InboxKey(recipient RecipientType, userID, eventID string) (string, error) {
	return subject.Join("", subject.Name("recipient_type", string(recipient)), subject.ID("user_id", userID), subject.ID("event_id", eventID))
}

// MaxID is the longest id, in bytes, that may become part of a subject or a key. Its encoded form has at most
// 428 bytes: a key of two ids and two names stays below the 1,024 bytes that kvlock allows, and every
// subject far below the server's control line of 4,096.
const MaxID = subject.MaxID

// EncodeToken turns any id into one NATS subject token that is also a valid part of a KV key.
//
// An id made only of A-Z, a-z, 0-9, '_' and '-' is returned as it is; everything else becomes '=' followed by
// its bytes in base64url without padding (RFC 4648 §5). The mapping is injective and case-preserving, and
// DecodeToken undoes it. A result never holds a dot, a wildcard, a slash or a space and is never empty.
//
// It returns ErrEmptyToken for "" and ErrTokenTooLong for more than MaxID bytes; the error has the length and never the id.
func EncodeToken(id string) (string, error) {
	return subject.EncodeToken(id)
}

// DecodeToken returns the id that EncodeToken made the token from. A token that EncodeToken would never have
// made (padding, another alphabet, the encoded form of an id that needs no encoding) is ErrTokenMalformed.
func DecodeToken(encoded string) (string, error) {
	return subject.DecodeToken(encoded)
}

// maxMsgID bounds a message id. The server keeps every id of its window in memory.
const maxMsgID = 256

// MsgID returns the Nats-Msg-Id of an event or a job: its id if that is short and printable, or a hash of it, since a header
// cannot have line breaks. Every publisher of an event uses the same id, so that the stream stores the event once.
func MsgID(id string) string {
	plain := len(id) <= maxMsgID && id != ""
	for i := 0; plain && i < len(id); i++ {
		plain = id[i] > ' ' && id[i] < 0x7f
	}
	if plain && !strings.HasPrefix(id, "sha256=") {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:])
}
