package contracts

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// maxMsgID bounds a message id. The server keeps every id of its window in memory.
const maxMsgID = 256

// EventMsgID is the Nats-Msg-Id of an event: "<source>|<id>", which together identify an event by the CloudEvents
// specification. A '|' or '\' in the source is escaped by '\', so that two different pairs never share an id.
func EventMsgID(source, id string) string {
	return bounded(strings.NewReplacer(`\`, `\\`, `|`, `\|`).Replace(source) + "|" + id)
}

// DomainEventMsgID is the Nats-Msg-Id of an Event: its id. A relay and a publisher use the same one, so that the stream
// stores an event once that both publish.
func DomainEventMsgID(eventID string) string { return bounded(eventID) }

// EnrichJobMsgID is the Nats-Msg-Id of an enrichment job: the claim. A job that is published again after an unclear
// answer has the same id, and a job for a later claim another.
func EnrichJobMsgID(claim string) string { return bounded(claim) }

// ImportJobMsgID is the Nats-Msg-Id of an import job: the id of the job.
func ImportJobMsgID(jobID string) string { return bounded(jobID) }

// bounded keeps ids that are short and printable and hashes the others: a header cannot have line breaks.
func bounded(id string) string {
	plain := len(id) <= maxMsgID && id != ""
	for i := 0; plain && i < len(id); i++ {
		plain = id[i] > ' ' && id[i] < 0x7f
	}
	if plain && !strings.HasPrefix(id, "sha256=") {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:])
}
