package contracts

import (
	"fmt"
	"strconv"
	"strings"
)

// Filters that select every message of a stream.
const (
	// AuditSubjects selects all records of what operators did.
	AuditSubjects = "audit.>"
	// EnrichJobsSubjects selects all enrichment jobs.
	EnrichJobsSubjects = "jobs.enrich.>"
	// EventsSubjects selects all domain events.
	EventsSubjects = "events.>"
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

// AuditSubject is the subject of the records of one action, from one source: a service, or cli.
func AuditSubject(source, action string) (string, error) {
	return join("audit", name("source", source), name("action", action))
}

// EnrichJobSubject is the subject of the job that looks a place up at a provider. There is one per place and provider,
// so that the stream holds each place once.
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

// NotifyPlanSubject is the subject of the one plan record of an event.
func NotifyPlanSubject(eventID string) (string, error) {
	return join("notify.plan", id("event_id", eventID))
}

// NotifyPageSubject is the subject of one page of a plan that is too large for one message. attempt distinguishes the
// attempts to write the plan: only the pages that the plan record names are part of it.
func NotifyPageSubject(eventID, attempt string, page int) (string, error) {
	return join("notify.plan", id("event_id", eventID), name("attempt", attempt), name("page", strconv.Itoa(page)))
}

// NotifySendSubject is the subject of one row of a plan: this event, to this user, on this channel. Publishing
// it with an expected last subject sequence of 0 is the unique constraint over the four.
func NotifySendSubject(channel string, recipient RecipientType, userID, eventID string) (string, error) {
	return join("notify.send", name("channel", channel), name("recipient_type", string(recipient)),
		id("user_id", userID), id("event_id", eventID))
}

// NotifyReplaySubject is the subject of a row that is sent again on request, for the n-th time, from 1. Filters made
// with [NotifySendSubject] do not match it; filters that end in ">" do.
func NotifyReplaySubject(channel string, recipient RecipientType, userID, eventID string, n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("contracts: replay %d: %w: want 1 or more", n, ErrTokenMalformed)
	}
	subject, err := NotifySendSubject(channel, recipient, userID, eventID)
	return subject + "." + strconv.Itoa(n), err
}

// EnrichSlotKey is the key, in bucket enrich, of the slot in which the claim on a place becomes its result.
func EnrichSlotKey(provider, placeID string) (string, error) {
	return join("", name("provider", provider), id("placeId", placeID))
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

// EventRecordKey is the key, in bucket deliveries, of the record that is kept of an event: that it was planned, and the
// hash of its payload.
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

// DirectoryKey is the key, in bucket directory, of one recipient.
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

// name returns a part that a program chose. It must be a short token as it is.
func name(name, value string) part { return part{name: name, value: value, isName: true} }

// join puts the parts behind the prefix, separated by dots. An error names the part.
func join(prefix string, parts ...part) (string, error) {
	var b strings.Builder
	b.WriteString(prefix)
	for _, p := range parts {
		token, err := EncodeToken(p.value)
		if err == nil && p.isName && (token != p.value || len(token) > MaxName) {
			err = fmt.Errorf("%w: want 1 to %d of A-Z, a-z, 0-9, '_' and '-'", ErrTokenMalformed, MaxName)
		}
		if err != nil {
			return "", fmt.Errorf("contracts: %s: %w", p.name, err)
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	return b.String(), nil
}
