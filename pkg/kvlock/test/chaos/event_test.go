package chaos_test

import (
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// event is one line that a worker writes down. Times are of the machine's monotonic clock: From before the operation was
// begun, To after it had returned.
type event struct {
	Kind   kind         `json:"kind"`
	By     string       `json:"by"`              // which worker and which of its tasks
	Lease  string       `json:"lease,omitempty"` // which of its leases or claims
	Name   string       `json:"name"`            // of the lock, or the key
	Token  kvlock.Token `json:"token"`
	Value  string       `json:"value,omitempty"`
	Answer answer       `json:"answer,omitempty"`
	Error  string       `json:"error,omitempty"`
	From   int64        `json:"from"`
	To     int64        `json:"to"`
}

type kind string

const (
	acquired  kind = "acquired"  // a lease was got
	alive     kind = "alive"     // the lease's context had not ended at From
	released  kind = "released"  // it was given back
	gaveUp    kind = "gave up"   // the waiter for a lock gave up
	writes    kind = "writes"    // the guarded value is about to be written under a lease
	wrote     kind = "wrote"     // and was, or was not
	completed kind = "completed" // a claim was ended with a result
	got       kind = "got"       // Do returned a value
	read      kind = "read"      // what is there when everything is over
	failed    kind = "failed"    // what should not fail did
)

type answer string

const (
	accepted answer = "accepted"
	refused  answer = "refused"
	unknown  answer = "unknown"
)
