package console

import (
	"fmt"

	"github.com/expediter-io/expediter/pkg/service/audit"
)

// auditShown is the number of records on the page of the audit.
const auditShown = 200

// addAudit adds the page of operators' actions, or with ?users=1 of other callers' requests. Two round trips, and two messages for each record.
func (c *Console) addAudit() {
	c.page("GET /audit", func(r *request) error {
		r.Command = fmt.Sprintf("expediter audit --limit %d", auditShown)
		list := audit.List
		if r.URL.Query().Has("users") {
			r.Command += " --users"
			list = audit.ListUsers
		}
		records, err := list(r.Context(), c.own, auditShown)
		if err != nil {
			return err
		}
		return r.render("audit", "Audit", records)
	})
}
