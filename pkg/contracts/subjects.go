package contracts

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/internal/subject"
)

// Filters that select every message of a stream.
const (
	// AuditSubjects selects all records of operators' actions.
	AuditSubjects = "audit.*.operators"
	// AuditUsersSubjects selects all records of the actions of other callers.
	AuditUsersSubjects = "audit.*.users.*"
	// EnrichJobsSubjects selects all enrichment jobs.
	EnrichJobsSubjects = "jobs.enrich.>"
	// EventsSubjects selects all domain events.
	EventsSubjects = "events.>"
	// RoutedEventsSubjects selects the domain events that have a route of their own. No encoded id has a slash, so a user without permission
	// for these subjects can choose no channels or texts.
	RoutedEventsSubjects = routedEvents + ".>"
	// ImportJobsSubjects selects all import jobs.
	ImportJobsSubjects = "jobs.import.>"
	// NotifyPlanRecordsSubjects selects the plan record of every event, without pages.
	NotifyPlanRecordsSubjects = "notify.plan.*"
	// NotifyPlansSubjects selects the plan record of every event, and the pages of large ones.
	NotifyPlansSubjects = "notify.plan.>"
	// NotifySendsSubjects selects every row of every plan.
	NotifySendsSubjects = "notify.send.>"
	// DeadSubjects selects all dead letters.
	DeadSubjects = "dead.>"
)

// AuditSubject is the subject of all records of operators' actions from one source: a service, or cli.
func AuditSubject(source string) (string, error) {
	return join("audit", name("source", source), name("class", "operators"))
}

// AuditUsersSubject is the subject of the records of one action, from one source, of callers who are no operators.
func AuditUsersSubject(source, action string) (string, error) {
	return join("audit", name("source", source), name("class", "users"), name("action", action))
}

// EnrichJobSubject is the subject of the job that looks a place up at a provider. Each place, provider and variant has its own, so that
// the stream holds each job once. The subject ends in the key of the entry.
func EnrichJobSubject(provider, placeID string) (string, error) {
	return join("jobs.enrich", name("provider", provider), id("placeId", placeID))
}

// ImportJobSubject is the subject of an import job in one of the priorities.
func ImportJobSubject(priority ImportPriority, jobID string) (string, error) {
	return join("jobs.import", name("priority", string(priority)), id("job_id", jobID))
}

// EventSubject is the subject of a domain event, such as events.RESTAURANT.RESERVATION_REQUESTED.
func EventSubject(aggregateType, eventType string) (string, error) {
	return join("events", id("aggregate_type", aggregateType), id("event_type", eventType))
}

const routedEvents = "events./routed"

// Subject is the subject of the event.
func (e Event) Subject() (string, error) {
	if len(e.Route) > 0 {
		return join(routedEvents, id("event_type", e.EventType))
	}
	return EventSubject(e.AggregateType, e.EventType)
}

// NotifyPlanSubject is the subject of the one plan record of an event.
func NotifyPlanSubject(eventID string) (string, error) {
	return join("notify.plan", id("event_id", eventID))
}

// NotifyPageSubject is the subject of one page of a plan that is too large for one message. attempt distinguishes the
// attempts to write the plan: only the pages that the plan record names are part of it.
func NotifyPageSubject(eventID, attempt string, page int) (string, error) {
	return join("notify.plan", id("event_id", eventID), name("attempt", attempt), name("page", strconv.Itoa(page)))
}

// NotifySendSubject is the subject of one row of a plan: this event, to this user, on this channel. Publishing to it with an expected last
// subject sequence of 0 is the unique constraint over the four.
func NotifySendSubject(channel string, recipient RecipientType, userID, eventID string) (string, error) {
	return join("notify.send", name("channel", channel), name("recipient_type", string(recipient)),
		id("user_id", userID), id("event_id", eventID))
}

// Subject is the subject of the row: that of [NotifySendSubject]. If the row is for one of several addresses, the address follows.
func (n *Notification) Subject() (string, error) {
	sent, err := NotifySendSubject(n.Channel, n.RecipientType, n.UserID, n.EventID)
	if err == nil && n.Address != "" {
		sent += "." + addressToken + n.Address
	}
	return sent, err
}

// Key is the key, in bucket deliveries, of the delivery of the row: that of [DeliveryKey]. If the row is for one of several addresses, the
// address follows the channel.
func (n *Notification) Key() (string, error) {
	if n.Address == "" {
		return DeliveryKey(n.EventID, n.Channel, n.RecipientType, n.UserID)
	}
	of, err := join("", name("recipient_type", string(n.RecipientType)), id("user_id", n.UserID))
	if err != nil {
		return "", err
	}
	key, err := join("", id("event_id", n.EventID), name("channel", n.Channel))
	return key + "." + addressToken + n.Address + "." + of, err
}

// addressToken begins the token of an address. No encoded id, name or number of a replay begins with it.
const addressToken = "/"

// RowKey returns the key of the record of a subject's row, and the number of the replay in the subject, 0 for the row itself.
func RowKey(of string) (key string, replay int, ok bool) {
	tokens := strings.Split(of, ".")
	if len(tokens) < 6 {
		return "", 0, false
	}
	parts, rest := []string{tokens[5], tokens[2]}, tokens[6:]
	if len(rest) > 0 && strings.HasPrefix(rest[0], addressToken) {
		parts, rest = append(parts, rest[0]), rest[1:]
	}
	if len(rest) > 0 {
		n, err := strconv.Atoi(rest[0])
		if err != nil || n < 1 || len(rest) > 1 {
			return "", 0, false
		}
		replay = n
	}
	return strings.Join(append(parts, tokens[3], tokens[4]), "."), replay, true
}

// RowOfKey returns the row of a key of bucket deliveries: event, channel and user. The error is [ErrTokenMalformed] for the key of another
// record.
func RowOfKey(key string) (n Notification, err error) {
	tokens := strings.Split(key, ".")
	if len(tokens) == 5 && strings.HasPrefix(tokens[2], addressToken) {
		n.Address = strings.TrimPrefix(tokens[2], addressToken)
		tokens = slices.Delete(tokens, 2, 3)
	}
	if len(tokens) != 4 {
		return n, fmt.Errorf("contracts: key %.80q: %w", key, ErrTokenMalformed)
	}
	n.Channel, n.RecipientType = tokens[1], RecipientType(tokens[2])
	if n.EventID, err = DecodeToken(tokens[0]); err == nil {
		n.UserID, err = DecodeToken(tokens[3])
	}
	return n, err
}

// ReplaySubject is the subject of the n-th replay, from 1, of a row that is sent again on request. Filters made with [NotifySendSubject]
// do not match it; filters that end in ">" do.
func (n *Notification) ReplaySubject(number int) (string, error) {
	if number < 1 {
		return "", fmt.Errorf("contracts: replay %d: %w: want 1 or more", number, ErrTokenMalformed)
	}
	sent, err := n.Subject()
	return sent + "." + strconv.Itoa(number), err
}

// EnrichEntryKey is the key, in bucket enrich, of the entry in which the claim on a place becomes its result.
func EnrichEntryKey(provider, placeID string) (string, error) {
	return join("", name("provider", provider), id("placeId", placeID))
}

// EnrichVariant returns the key or subject of the n-th variant of a place: a description that differs from that of the first entry. 0 is
// the first entry itself.
func EnrichVariant(key string, n int) string {
	if n == 0 {
		return key
	}
	return key + "." + strconv.Itoa(n)
}

// RequestKey is the key, in bucket requests, of the record of one enrichment request.
func RequestKey(requestID string) (string, error) {
	return join("", id("requestId", requestID))
}

// ImportJobKey is the key, in bucket import-jobs, of the state of one import job.
func ImportJobKey(jobID string) (string, error) {
	return join("", id("job_id", jobID))
}

// ImportStepKey is the key, in bucket import-steps, of one step of a job or of a computation that jobs share.
func ImportStepKey(scope, step string) (string, error) {
	return join("", id("scope", scope), name("step", step))
}

// RecipeKey is the key, in bucket recipes, of one recipe.
func RecipeKey(recipeID string) (string, error) {
	return join("recipe", id("recipe_id", recipeID))
}

// RecipeOwnerKey is the key, in bucket recipes, of the entry that assigns a recipe to an owner.
func RecipeOwnerKey(ownerID, recipeID string) (string, error) {
	return join("owner", id("owner_id", ownerID), id("recipe_id", recipeID))
}

// DeliveryKey is the key, in bucket deliveries, of the delivery of one row of a plan.
func DeliveryKey(eventID, channel string, recipient RecipientType, userID string) (string, error) {
	return join("", id("event_id", eventID), name("channel", channel),
		name("recipient_type", string(recipient)), id("user_id", userID))
}

// EventRecordKey is the key, in bucket deliveries, of the record of a planned event. The record has the hash of the event's payload.
func EventRecordKey(eventID string) (string, error) {
	return join("", id("event_id", eventID))
}

// CancelledKeys selects the keys, in bucket deliveries, of all cancellations. They begin with a slash, which no encoded
// id contains.
const CancelledKeys = "/cancelled.>"

// CancelledKey is the key, in bucket deliveries, of the cancellation of an event.
func CancelledKey(eventID string) (string, error) {
	key, err := join("/cancelled", id("event_id", eventID))
	return key + ".all", err
}

// CancelledUserKey is the key, in bucket deliveries, of the cancellation of an event for one user.
func CancelledUserKey(eventID string, recipient RecipientType, userID string) (string, error) {
	return join("/cancelled", id("event_id", eventID), name("one", "one"), name("recipient_type", string(recipient)), id("user_id", userID))
}

// CancelledUserKeys selects the keys of the cancellations of an event for one user.
func CancelledUserKeys(eventID string) (string, error) {
	key, err := join("/cancelled", id("event_id", eventID))
	return key + ".one.>", err
}

// DigestKey is the key, in bucket deliveries, of the content of a digest of one user on one channel. digestID is the
// event id of the digest's row.
func DigestKey(digestID, channel string, recipient RecipientType, userID string) (string, error) {
	return join("digest", id("digest", digestID), name("channel", channel),
		name("recipient_type", string(recipient)), id("user_id", userID))
}

// ThrottleKey is the key, in bucket deliveries, of the count of a user's recent notifications on one channel, in one
// group, which is usually a category.
func ThrottleKey(group, channel string, recipient RecipientType, userID string) (string, error) {
	return join("throttle", id("group", group), name("channel", channel),
		name("recipient_type", string(recipient)), id("user_id", userID))
}

// InboxKey is the key, in bucket inbox, of one in-app notification of one user.
func InboxKey(recipient RecipientType, userID, eventID string) (string, error) {
	return join("", name("recipient_type", string(recipient)), id("user_id", userID), id("event_id", eventID))
}

// InboxKeys selects the keys of all in-app notifications of one user.
func InboxKeys(recipient RecipientType, userID string) (string, error) {
	prefix, err := join("", name("recipient_type", string(recipient)), id("user_id", userID))
	return prefix + ".*", err
}

// DirectoryKey is the key, in bucket directory, of the record of one recipient.
func DirectoryKey(recipient RecipientType, userID string) (string, error) {
	return join("", name("recipient_type", string(recipient)), id("user_id", userID))
}

// DirectoryMemberKey is the key, in bucket directory, of the entry that makes a recipient a member of an aggregate: the
// aggregate's events concern the recipient. Its value is empty. The type of the aggregate is a name that a program
// chose, such as RESTAURANT.
func DirectoryMemberKey(aggregateType, aggregateID string, recipient RecipientType, userID string) (string, error) {
	return join("member", name("aggregate_type", aggregateType), id("aggregate_id", aggregateID),
		name("recipient_type", string(recipient)), id("user_id", userID))
}

// DirectoryMembersKeys selects the keys of all recipients of a kind that events of an aggregate concern.
func DirectoryMembersKeys(aggregateType, aggregateID string, recipient RecipientType) (string, error) {
	prefix, err := join("member", name("aggregate_type", aggregateType), id("aggregate_id", aggregateID),
		name("recipient_type", string(recipient)))
	return prefix + ".*", err
}

// DirectoryMembershipsKeys selects the keys of the memberships of a recipient, in all aggregates.
func DirectoryMembershipsKeys(recipient RecipientType, userID string) (string, error) {
	return join("member.*.*", name("recipient_type", string(recipient)), id("user_id", userID))
}

// DirectoryKeys selects the keys of all recipients of a kind.
func DirectoryKeys(recipient RecipientType) (string, error) {
	prefix, err := join("", name("recipient_type", string(recipient)))
	return prefix + ".*", err
}

// part is one token of a subject or a key.
type part struct {
	name, value string
	isName      bool
}

// id returns a part that comes from outside and is encoded.
func id(name, value string) part { return part{name: name, value: value} }

// name returns a part that a program chose. The value must itself be a short token.
func name(name, value string) part { return part{name: name, value: value, isName: true} }

// join appends the parts to the prefix, separated by dots. An error names the part.
func join(prefix string, parts ...part) (string, error) {
	var b strings.Builder
	room := len(prefix)
	for _, p := range parts {
		room += 1 + len(p.value)
	}
	b.Grow(room)
	b.WriteString(prefix)
	for _, p := range parts {
		text, err := EncodeToken(p.value)
		if err == nil && p.isName && (text != p.value || len(text) > MaxName) {
			err = fmt.Errorf("%w: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", ErrTokenMalformed, MaxName)
		}
		if err != nil {
			return "", fmt.Errorf("contracts: %s: %w", p.name, err)
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(text)
	}
	return b.String(), nil
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

// EventMsgID is the Nats-Msg-Id of an event: "<source>|<id>", which together identify an event by the CloudEvents
// specification. A '|' or '\' in the source is escaped by '\', so that two different pairs never share an id.
func EventMsgID(source, id string) string {
	return bounded(strings.NewReplacer(`\`, `\\`, `|`, `\|`).Replace(source) + "|" + id)
}

// DomainEventMsgID is the Nats-Msg-Id of an Event: its id. A relay and a publisher use the same id, so that the stream stores an event
// once even if both publish it.
func DomainEventMsgID(eventID string) string { return bounded(eventID) }

// EnrichJobMsgID is the Nats-Msg-Id of an enrichment job: the claim. A job that is published again after an unclear answer has the same
// id. A job for a later claim has another.
func EnrichJobMsgID(claim string) string { return bounded(claim) }

// ImportJobMsgID is the Nats-Msg-Id of an import job: the id of the job.
func ImportJobMsgID(jobID string) string { return bounded(jobID) }

// bounded keeps short, printable ids, and hashes the others: a header cannot have line breaks.
func bounded(id string) string {
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
