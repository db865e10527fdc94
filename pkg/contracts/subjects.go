package contracts

import (
	"fmt"
	"strings"
)

// Filters that select every message of a stream.
const (
	// EnrichJobsSubjects selects all enrichment jobs.
	EnrichJobsSubjects = "jobs.enrich.>"
	// EventsSubjects selects all domain events.
	EventsSubjects = "events.>"
	// ImportJobsSubjects selects all import jobs.
	ImportJobsSubjects = "jobs.import.>"
	// NotifyPlansSubjects selects the plan record of every event.
	NotifyPlansSubjects = "notify.plan.>"
	// NotifySendsSubjects selects every row of every plan.
	NotifySendsSubjects = "notify.send.>"
	// DeadSubjects selects all dead letters.
	DeadSubjects = "dead.>"
)

// EnrichJobSubject is the subject of the job that looks a place up at a provider. There is one per place and
// provider, which is what lets the stream hold each place once.
func EnrichJobSubject(provider, placeID string) (string, error) {
	return join("jobs.enrich", named{"provider", provider}, named{"placeId", placeID})
}

// ImportJobSubject is the subject of an import job in one of the priorities.
func ImportJobSubject(priority ImportPriority, jobID string) (string, error) {
	return join("jobs.import", named{"priority", string(priority)}, named{"job_id", jobID})
}

// EventSubject is the subject of a domain event, such as events.RESTAURANT.RESERVATION_REQUESTED.
func EventSubject(aggregateType, eventType string) (string, error) {
	return join("events", named{"aggregate_type", aggregateType}, named{"event_type", eventType})
}

// NotifyPlanSubject is the subject of the one plan record of an event.
func NotifyPlanSubject(eventID string) (string, error) {
	return join("notify.plan", named{"event_id", eventID})
}

// NotifySendSubject is the subject of one row of a plan: this event, to this user, on this channel. Publishing
// it with an expected last subject sequence of 0 is the unique constraint over the four.
func NotifySendSubject(channel string, recipient RecipientType, userID, eventID string) (string, error) {
	return join("notify.send", named{"channel", channel}, named{"recipient_type", string(recipient)},
		named{"user_id", userID}, named{"event_id", eventID})
}

// DeadSubject is the subject of a dead letter: the stream that the message came from, then the message's own
// subject, whose tokens are kept as they are because the server already accepted them.
func DeadSubject(stream, subject string) (string, error) {
	prefix, err := join("dead", named{"stream", stream})
	if err != nil {
		return "", err
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n\f\x00") {
			return "", fmt.Errorf("contracts: subject of %d bytes for a dead letter: %w", len(subject), ErrTokenMalformed)
		}
	}
	return prefix + "." + subject, nil
}

// EnrichSlotKey is the key, in bucket enrich, of the slot in which the claim on a place becomes its result.
func EnrichSlotKey(provider, placeID string) (string, error) {
	return join("", named{"provider", provider}, named{"placeId", placeID})
}

// RequestKey is the key, in bucket requests, of the record of one enrichment request.
func RequestKey(requestID string) (string, error) {
	return join("", named{"requestId", requestID})
}

// ImportJobKey is the key, in bucket import-jobs, of the state of one import job.
func ImportJobKey(jobID string) (string, error) {
	return join("", named{"job_id", jobID})
}

// ImportStepKey is the key, in bucket import-steps, of one step of a job or of a computation that jobs share.
func ImportStepKey(scope, step string) (string, error) {
	return join("", named{"scope", scope}, named{"step", step})
}

// DeliveryKey is the key, in bucket deliveries, of the ledger entry of one row of a plan.
func DeliveryKey(eventID, channel string, recipient RecipientType, userID string) (string, error) {
	return join("", named{"event_id", eventID}, named{"channel", channel},
		named{"recipient_type", string(recipient)}, named{"user_id", userID})
}

// InboxKey is the key, in bucket inbox, of one in-app notification of one user.
func InboxKey(recipient RecipientType, userID, eventID string) (string, error) {
	return join("", named{"recipient_type", string(recipient)}, named{"user_id", userID}, named{"event_id", eventID})
}

// DirectoryKey is the key, in bucket directory, of one recipient.
func DirectoryKey(recipient RecipientType, userID string) (string, error) {
	return join("", named{"recipient_type", string(recipient)}, named{"user_id", userID})
}

type named struct{ name, id string }

// join encodes the ids and puts them behind the prefix, separated by dots. An error names the id.
func join(prefix string, ids ...named) (string, error) {
	var b strings.Builder
	b.WriteString(prefix)
	for _, id := range ids {
		token, err := EncodeToken(id.id)
		if err != nil {
			return "", fmt.Errorf("%s: %w", id.name, err)
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	return b.String(), nil
}
