package kvlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/record"
)

// Token orders the holders of one key: a later lease or claim has a greater token. A writer passes it to the system
// that it writes to, and that system refuses a smaller token than it has seen. Tokens of different keys are not
// ordered.
//
// Epoch is the time at which the bucket was created, in nanoseconds since 1970, so that tokens still grow when a bucket
// is deleted and made anew; Revision is the stream sequence at which the lease or claim was taken.
type Token struct {
	Epoch    uint64
	Revision uint64
}

// Compare returns -1, 0 or +1 as t is before, equal to or after u.
func (t Token) Compare(u Token) int {
	switch {
	case t == u:
		return 0
	case t.Epoch < u.Epoch || t.Epoch == u.Epoch && t.Revision < u.Revision:
		return -1
	default:
		return 1
	}
}

// String returns the token as "epoch-revision".
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Epoch, t.Revision) }

// ParseToken reads what [Token.String] wrote.
func ParseToken(s string) (Token, error) {
	epoch, revision, _ := strings.Cut(s, "-")
	e, epochErr := strconv.ParseUint(epoch, 10, 64)
	r, revisionErr := strconv.ParseUint(revision, 10, 64)
	if err := errors.Join(epochErr, revisionErr); err != nil {
		s = record.Truncate(s, record.MaxIDBytes)
		return Token{}, fmt.Errorf("kvlock: %q is not a token: want two numbers and a hyphen between them", s)
	}
	return Token{Epoch: e, Revision: r}, nil
}
