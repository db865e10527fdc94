package api

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Replayed is the result of a replay.
type Replayed struct {
	// Gone is the number of notifications that cannot be sent again, because their stream keeps notifications for 30 days only.
	Gone int `json:"gone"`

	// Next is the cursor of the next notifications, "" when there are none. A call that finds no notifications may have a Next.
	Next string `json:"next,omitempty"`

	// Replayed is the number of notifications that are sent again.
	Replayed int `json:"replayed"`
}

// Replay sends notifications again that have ended without being sent, under their message ids and with all their attempts: the failed
// notifications that a query selects, or the bounced notifications if its state is bounced. One call takes 1,000 notifications at most,
// and the next continues with the cursor. The calls with one cursor do not take a notification twice that fails again.
//
// A notification is recorded as pending before its message is stored. A crash in between loses nothing: the next call that
// selects the notification, by any state, finishes the replay. Four round trips for each notification.
func (a *API) Replay(ctx context.Context, q Query) (Replayed, error) {
	q.State = cmp.Or(q.State, deliveries.Failed)
	if q.State != deliveries.Failed && q.State != deliveries.Bounced {
		return Replayed{}, contracts.Mistake("query", "?state", "must be failed or bounced: nothing else is sent again")
	}
	cursor, begun, err := replayCursor(q.Cursor)
	if err != nil {
		return Replayed{}, err
	}
	q.Cursor, q.Limit = cursor, cmp.Or(q.Limit, MaxLimit)
	from, err := q.begin()
	if err != nil {
		return Replayed{}, err
	}
	wanted := func(k *deliveries.Delivery) bool {
		return replayable(k, q) && !k.UpdatedAt.After(begun) && !k.UpdatedAt.Before(q.Since)
	}
	var answer Replayed
	err = a.cfg.Audit.Do(ctx, "replay", q.target(), func(ctx context.Context) (int, error) {
		page, err := a.page(ctx, q, from, wanted)
		if err != nil {
			return 0, err
		}
		if page.Next != "" {
			answer.Next = page.Next + "." + strconv.FormatInt(begun.UnixNano(), 36)
		}
		err = a.replayAll(ctx, page.Notifications, q, &answer)
		return answer.Replayed, err
	})
	return answer, err
}

// replayable reports whether to replay a notification: a query selects it by state and reason, or its replay was begun and not
// finished.
func replayable(k *deliveries.Delivery, q Query) bool {
	return k.State == q.State && (q.Reason == "" || q.Reason == k.Reason) || k.Replaying()
}

// replayCursor splits the cursor of a replay into the cursor of the notifications, and the time at which the first call began.
func replayCursor(text string) (rows string, begun time.Time, err error) {
	if text == "" {
		return "", time.Now(), nil
	}
	rows, at, _ := strings.Cut(text, ".")
	nanoseconds, err := strconv.ParseInt(at, 36, 64)
	if err != nil {
		return "", begun, unknownCursor()
	}
	return rows, time.Unix(0, nanoseconds), nil
}

// replayAll replays notifications, some at a time.
func (a *API) replayAll(ctx context.Context, rows []Notification, q Query, answer *Replayed) error {
	var mu sync.Mutex
	return each(rows, func(_ int, n Notification) error {
		done, err := a.replay(ctx, n, q)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, errGone):
			answer.Gone++
			return nil
		case done:
			answer.Replayed++
		}
		return err
	})
}

// errGone is returned for a notification that its stream no longer has.
var errGone = errors.New("the notification is not kept any more")

// replay replays one notification, and reports whether this call did so.
func (a *API) replay(ctx context.Context, n Notification, q Query) (bool, error) {
	of, err := keys.Parse(n.key)
	if err != nil {
		return false, err
	}
	subject, err := keys.Send(&of)
	if err != nil {
		return false, err
	}
	found, err := a.rows.Get(ctx, subject)
	if err != nil {
		return false, err
	}
	if len(found.Data) == 0 {
		return false, errGone
	}
	read, err := contracts.Decode[contracts.Notification](found.Data)
	if err != nil { // the notification still cannot be read
		return false, nil //nolint:nilerr // its dead letter says so
	}
	kept, mine := n.kept, false
	for replayable(kept, q) && !kept.Replaying() {
		kept.Replay()
		err := a.cfg.Deliveries.Put(ctx, n.key, kept)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			kept = taken.There
			continue
		}
		if err != nil {
			return false, err
		}
		mine = true
	}
	if !kept.Replaying() { // another process has begun to send it
		return false, nil
	}
	w, err := deliveries.Replay(read, found.Data, kept.Replays)
	if err != nil {
		return false, err
	}
	if !mine { // another process has recorded the replay, and may have died
		if there, err := a.rows.Get(ctx, w.Subject); err != nil || there.Revision > 0 {
			return false, err
		}
	}
	_, err = a.rows.Put(ctx, w)
	if errors.Is(err, kvrecord.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
