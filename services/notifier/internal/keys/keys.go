// Package keys makes the keys of the notifier's records, and the subjects that only the notifier publishes to.
//
//	notify.plan.<event>                                    Plan          stream NOTIFICATIONS
//	notify.plan.<event>.<attempt>.<page>                   Page          stream NOTIFICATIONS
//	notify.send.<channel>.<type>.<user>.<event>            Send          stream NOTIFICATIONS
//	notify.send.<channel>.<type>.<user>.<event>.<n>        Replay        stream NOTIFICATIONS
//	<event>                                                Event         bucket deliveries
//	<event>.<channel>.<type>.<user>                        Of            bucket deliveries
//	digest.<digest>.<channel>.<type>.<user>                Digest        bucket deliveries
//	throttle.<group>.<channel>.<type>.<user>               Throttle      bucket deliveries
//	/cancelled.<event>.all                                 Cancelled     bucket deliveries
//	/cancelled.<event>.one.<type>.<user>                   CancelledUser bucket deliveries
//	<type>.<user>                                          Recipient     bucket directory
//	member.<aggregate type>.<aggregate>.<type>.<user>      Member        bucket directory
//
// The address of a notification for one of several is its own token, which begins with a slash: it follows the event in
// a subject, and the channel in a key.
package keys

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// addressToken begins the token of an address. No encoded id, name or number of a replay begins with it.
const addressToken = "/"

// Plan returns the subject of the one plan record of an event.
func Plan(eventID string) (string, error) {
	return subject.Join("notify.plan", subject.ID("event_id", eventID))
}

// Page returns the subject of one page of a plan that is too large for one message. attempt distinguishes the attempts to
// write the plan: only the pages that the plan record names are part of it.
func Page(eventID, attempt string, page int) (string, error) {
	return subject.Join("notify.plan", subject.ID("event_id", eventID), subject.Name("attempt", attempt),
		subject.Name("page", strconv.Itoa(page)))
}

// Send returns the subject of a notification. Publishing to it with an expected last subject sequence of 0 is the unique
// constraint over event, user, channel and address.
func Send(n *contracts.Notification) (string, error) {
	to, err := contracts.NotifySendSubject(n.Channel, n.RecipientType, n.UserID, n.EventID)
	if err == nil && n.Address != "" {
		to += "." + addressToken + n.Address
	}
	return to, err
}

// Replay returns the subject of the replay with a number, from 1, of a notification that is resent on request. Filters
// made with [contracts.NotifySendSubject] do not match it; filters that end in ">" do.
func Replay(n *contracts.Notification, number int) (string, error) {
	if number < 1 {
		return "", fmt.Errorf("replay %d: %w: want 1 or more", number, contracts.ErrTokenMalformed)
	}
	to, err := Send(n)
	return to + "." + strconv.Itoa(number), err
}

// Of returns the key, in bucket deliveries, of the delivery of a notification.
func Of(n *contracts.Notification) (string, error) {
	key, err := subject.Join("", subject.ID("event_id", n.EventID), subject.Name("channel", n.Channel))
	if err != nil {
		return "", err
	}
	if n.Address != "" {
		key += "." + addressToken + n.Address
	}
	return subject.Join(key, user(n.RecipientType, n.UserID)...)
}

// OfSubject returns the key of the delivery of the notification on a subject, and the number of the replay in the subject,
// 0 for the notification itself.
func OfSubject(of string) (key string, replay int, ok bool) {
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

// Parse returns the event, channel, address and user of the key of a delivery. The error is [contracts.ErrTokenMalformed]
// for the key of another record.
func Parse(key string) (n contracts.Notification, err error) {
	tokens := strings.Split(key, ".")
	if len(tokens) == 5 && strings.HasPrefix(tokens[2], addressToken) {
		n.Address = strings.TrimPrefix(tokens[2], addressToken)
		tokens = slices.Delete(tokens, 2, 3)
	}
	if len(tokens) != 4 {
		return n, fmt.Errorf("key %.80q: %w", key, contracts.ErrTokenMalformed)
	}
	n.Channel, n.RecipientType = tokens[1], contracts.RecipientType(tokens[2])
	if n.EventID, err = contracts.DecodeToken(tokens[0]); err == nil {
		n.UserID, err = contracts.DecodeToken(tokens[3])
	}
	return n, err
}

// Event returns the key, in bucket deliveries, of the record of a planned event, which has the hash of the event's payload.
func Event(eventID string) (string, error) {
	return subject.Join("", subject.ID("event_id", eventID))
}

// AllCancelled selects the keys, in bucket deliveries, of all cancellations. They begin with a slash, which no encoded id contains.
const AllCancelled = "/cancelled.>"

// Cancelled returns the key, in bucket deliveries, of the cancellation of an event. It matches AllCancelled.
func Cancelled(eventID string) (string, error) {
	key, err := subject.Join("/cancelled", subject.ID("event_id", eventID))
	return key + ".all", err
}

// CancelledUser returns the key, in bucket deliveries, of the cancellation of an event for one user.
func CancelledUser(eventID string, recipient contracts.RecipientType, userID string) (string, error) {
	key, err := subject.Join("/cancelled", subject.ID("event_id", eventID))
	if err != nil {
		return "", err
	}
	return subject.Join(key+".one", user(recipient, userID)...)
}

// CancelledUsers selects the keys of the cancellations of an event for one user.
func CancelledUsers(eventID string) (string, error) {
	key, err := subject.Join("/cancelled", subject.ID("event_id", eventID))
	return key + ".one.>", err
}

// Digest returns the key, in bucket deliveries, of the content of a digest of one user on one channel. digestID is the
// event id of the digest's notification.
func Digest(digestID, channel string, recipient contracts.RecipientType, userID string) (string, error) {
	return subject.Join("digest", append(
		[]subject.Part{subject.ID("digest", digestID), subject.Name("channel", channel)}, user(recipient, userID)...)...)
}

// Throttle returns the key, in bucket deliveries, of the count of a user's recent notifications on one channel, in one
// group, which is usually a category.
func Throttle(group, channel string, recipient contracts.RecipientType, userID string) (string, error) {
	return subject.Join("throttle", append(
		[]subject.Part{subject.ID("group", group), subject.Name("channel", channel)}, user(recipient, userID)...)...)
}

// Inbox selects the keys, in bucket inbox, of all notifications of one user.
func Inbox(recipient contracts.RecipientType, userID string) (string, error) {
	prefix, err := subject.Join("", user(recipient, userID)...)
	return prefix + ".*", err
}

// Recipient returns the key, in bucket directory, of the record of one recipient.
func Recipient(recipient contracts.RecipientType, userID string) (string, error) {
	return subject.Join("", user(recipient, userID)...)
}

// Recipients selects the keys of all recipients of a kind.
func Recipients(recipient contracts.RecipientType) (string, error) {
	prefix, err := subject.Join("", kind(recipient))
	return prefix + ".*", err
}

// Member returns the key, in bucket directory, of the entry that makes a recipient a member of an aggregate: the
// aggregate's events concern the recipient. Its value is empty. The type of the aggregate is a name that a program chose,
// such as RESTAURANT.
func Member(aggregateType, aggregateID string, recipient contracts.RecipientType, userID string) (string, error) {
	return subject.Join("member", append(aggregate(aggregateType, aggregateID), user(recipient, userID)...)...)
}

// Members selects the keys of all recipients of a kind that events of an aggregate concern.
func Members(aggregateType, aggregateID string, recipient contracts.RecipientType) (string, error) {
	prefix, err := subject.Join("member", append(aggregate(aggregateType, aggregateID), kind(recipient))...)
	return prefix + ".*", err
}

// Memberships selects the keys of the memberships of a recipient, in all aggregates.
func Memberships(recipient contracts.RecipientType, userID string) (string, error) {
	return subject.Join("member.*.*", user(recipient, userID)...)
}

func kind(recipient contracts.RecipientType) subject.Part {
	return subject.Name("recipient_type", string(recipient))
}

func user(recipient contracts.RecipientType, userID string) []subject.Part {
	return []subject.Part{kind(recipient), subject.ID("user_id", userID)}
}

func aggregate(kind, id string) []subject.Part {
	return []subject.Part{subject.Name("aggregate_type", kind), subject.ID("aggregate_id", id)}
}
