package console

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/service/audit"
)

// auditShown is how many records the page of the audit has.
const auditShown = 200

// addAudit adds the page of what operators did. Four round trips, and two messages for each record.
func (c *Console) addAudit() {
	c.page("GET /audit", func(r *request) error {
		r.Command = fmt.Sprintf("expediter audit --limit %d", auditShown)
		js, err := jetstream.New(c.cfg.Conn)
		if err != nil {
			return fmt.Errorf("console: use JetStream: %w", err)
		}
		records, err := audit.List(r.Context(), js, auditShown)
		if err != nil {
			return err
		}
		return r.render("audit", "Audit", records)
	})
}
