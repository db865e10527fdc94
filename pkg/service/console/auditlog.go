package console

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/pkg/service/audit"
)

// auditShown is the number of records on the page of the audit.
const auditShown = 200

// records returns the latest records of the audit.
func (c *Console) records(ctx context.Context, limit int) ([]audit.Record, error) {
	js, err := denied.JetStream(ctx, c.own)
	if err != nil {
		return nil, err
	}
	return audit.List(ctx, js, limit)
}

// addAudit adds the page of operators' actions. Two round trips, and two messages for each record.
func (c *Console) addAudit() {
	c.page("GET /audit", func(r *request) error {
		r.Command = fmt.Sprintf("expediter audit --limit %d", auditShown)
		records, err := c.records(r.Context(), auditShown)
		if err != nil {
			return err
		}
		return r.render("audit", "Audit", records)
	})
}
