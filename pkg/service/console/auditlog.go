package console

import (
	"fmt"

	"github.com/expediter-io/expediter/pkg/service/audit"
)

// auditShown is the number of records on the page of the audit.
const auditShown = 200

// addAudit adds the page of operators' actions. Two round trips, and two messages for each record.
func (c *Console) addAudit() {
	c.page("GET /audit", func(r *request) error {
		r.Command = fmt.Sprintf("expediter audit --limit %d", auditShown)
		records, err := audit.List(r.Context(), c.own, auditShown)
		if err != nil {
			return err
		}
		return r.render("audit", "Audit", records)
	})
}
