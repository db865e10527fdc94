package kvrecord

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// The revision is read from the server's refusal, and from nothing else.
func TestRefusedAt(t *testing.T) {
	t.Parallel()
	refusal := func(code jetstream.ErrorCode, text string) error {
		return fmt.Errorf("put: %w", &jetstream.APIError{Code: 400, ErrorCode: code, Description: text})
	}
	for _, tt := range []struct {
		err error
		at  uint64
		ok  bool
	}{
		{refusal(jetstream.JSErrCodeStreamWrongLastSequence, "wrong last sequence: 7"), 7, true},
		{refusal(jetstream.JSErrCodeStreamWrongLastSequence, "wrong last sequence: 0"), 0, true},
		{refusal(10164, "wrong last sequence"), 0, false},
		{refusal(10047, "insufficient: 7"), 0, false},
		{errors.New("wrong last sequence: 7"), 0, false},
		{nil, 0, false},
	} {
		if at, ok := RefusedAt(tt.err); at != tt.at || ok != tt.ok {
			t.Errorf("%v: got %d, %t; want %d, %t", tt.err, at, ok, tt.at, tt.ok)
		}
	}
}
