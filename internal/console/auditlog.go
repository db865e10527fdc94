package console

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/service/audit"
)

const auditShown = 200

type recordList func(context.Context, jetstream.JetStream, int) ([]audit.Record, error)

// records returns the latest records of the audit, of operators or of other callers.
func (c *Console) records(ctx context.Context, list recordList, limit int) ([]audit.Record, error) {
	js, err := denied.JetStream(ctx, c.own)
	if err != nil {
		return nil, err
	}
	return list(ctx, js, limit)
}

// addAudit adds the page of operators' actions, or with ?users=1 of other callers' requests. Two round trips, and two messages for each
// record.
func (c *Console) addAudit() {
	c.page("GET /audit", []string{"users"}, func(r *request) error {
		r.Command = fmt.Sprintf("expediter audit --limit %d", auditShown)
		list := recordList(audit.List)
		if r.URL.Query().Has("users") {
			r.Command += " --users"
			list = audit.ListUsers
		}
		records, err := c.records(r.Context(), list, auditShown)
		if err != nil {
			return err
		}
		return r.render("audit", "Audit", records)
	})
}
