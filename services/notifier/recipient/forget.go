package recipient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	// headerForgotten is in the mark of a recipient whose data was erased.
	headerForgotten = "Expediter-Forgotten"

	// forgotten is how long the mark stays: longer than a plan, and the rows of a plan, which may name the recipient.
	forgotten = 40 * 24 * time.Hour
)

// Forget removes what the directory knows of a recipient, but for the aggregates whose events concern the recipient, and
// reports whether that was anything. A mark takes its place for 40 days: the notifier sends nothing to the recipient, also not
// what was planned before. For other readers of the bucket the key is deleted. Put and SetAddress make the recipient known
// again. Two round trips, more when others write at the same time.
func (d *Directory) Forget(ctx context.Context, kind contracts.RecipientType, userID string) (known bool, err error) {
	key, err := contracts.DirectoryKey(kind, userID)
	if err != nil {
		return false, permanent(err)
	}
	subject := d.records.Key(key)
	over, err := d.records.Latest(ctx, subject)
	for err == nil {
		_, err = d.records.Put(ctx, kvrecord.Write{
			Subject: subject, Header: nats.Header{"KV-Operation": {"DEL"}, headerForgotten: {"true"}}, Over: over, TTL: forgotten,
		})
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if err == nil {
			return !isAbsent(over), nil
		}
		if ok {
			over, err = conflict.Found, nil
		}
	}
	return false, temporary(fmt.Errorf("erase %s of the directory: %w", key, err))
}

func isForgotten(r kvrecord.Record) bool { return r.Header.Get(headerForgotten) != "" }
