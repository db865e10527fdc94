package jsapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server's error codes that have a meaning here.
const (
	codeAccountFull     jetstream.ErrorCode = 10002
	codeMemoryFull      jetstream.ErrorCode = 10028
	codeNoMessage       jetstream.ErrorCode = 10037
	codeNoSequence      jetstream.ErrorCode = 10043
	codeTooLarge        jetstream.ErrorCode = 10054
	codeDeleteFailed    jetstream.ErrorCode = 10057 // also for a message that does not exist
	codeNoStream        jetstream.ErrorCode = 10059
	codeOtherStream     jetstream.ErrorCode = 10060 // the subject belongs to another stream than expected
	codeWrongSequence   jetstream.ErrorCode = 10071
	codeStoreFailed     jetstream.ErrorCode = 10077 // for any reason; the text names the limit of the stream
	codeHeaderTooLarge  jetstream.ErrorCode = 10097
	codeInProcess       jetstream.ErrorCode = 10158 // a message with the same id is being stored
	codeSequenceInDoubt jetstream.ErrorCode = 10164 // in a cluster: another write of the subject is being stored
)

// The server's error codes that single packages have a use for, with [HasCode].
const (
	CodeNoPeers         jetstream.ErrorCode = 10005 // in a cluster: no node is fit; the text has the reason
	CodeNotLeader       jetstream.ErrorCode = 10009 // another node leads now
	CodeNoCluster       jetstream.ErrorCode = 10010
	CodeNoAccount       jetstream.ErrorCode = 10035
	CodeNotInCluster    jetstream.ErrorCode = 10036 // not supported in a cluster
	CodeStorageFull     jetstream.ErrorCode = 10047
	CodeUnfiltered      jetstream.ErrorCode = 10099 // the work queue has a consumer, and one of the two takes everything
	CodeNotUnique       jetstream.ErrorCode = 10100 // another consumer of the work queue has some of the subjects
	CodeStreamSealed    jetstream.ErrorCode = 10109
	CodeStreamAway      jetstream.ErrorCode = 10118 // every node that has the stream is away
	CodeConsumerAway    jetstream.ErrorCode = 10119 // every node that has the consumer is away
	CodeStreamTooBig    jetstream.ErrorCode = 10122
	CodeScheduleInvalid jetstream.ErrorCode = 10189
	CodeZoneInvalid     jetstream.ErrorCode = 10223
)

// IsRefused reports whether the server compared sequences and found another sequence, or a message where none was expected. Around a
// change of leader the message may have been stored all the same.
func IsRefused(err error) bool {
	return HasCode(err, codeWrongSequence, codeSequenceInDoubt) ||
		HasCode(err, codeStoreFailed) && strings.Contains(description(err), "per subject")
}

// IsInDoubt reports whether the server refused a message because another message of the subject is being stored.
func IsInDoubt(err error) bool { return HasCode(err, codeSequenceInDoubt) }

// IsInProcess reports whether a message with the same id is being stored.
func IsInProcess(err error) bool { return HasCode(err, codeInProcess) }

// IsFull reports whether the stream, the account or the server has no room left.
func IsFull(err error) bool {
	return HasCode(err, codeAccountFull, codeMemoryFull, CodeStorageFull) ||
		HasCode(err, codeStoreFailed) && strings.HasPrefix(description(err), "maximum ") && !IsRefused(err)
}

// IsTooLarge reports whether the message is too large for the server or the stream.
func IsTooLarge(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || HasCode(err, codeTooLarge, codeHeaderTooLarge)
}

// IsNoStream reports whether the server knows no stream of that name.
func IsNoStream(err error) bool { return HasCode(err, codeNoStream) }

// IsOtherStream reports whether the subject belongs to another stream than the one named in the message.
func IsOtherStream(err error) bool { return HasCode(err, codeOtherStream) }

// IsAnswer reports whether err is the server's answer.
func IsAnswer(err error) bool {
	_, ok := errors.AsType[*jetstream.APIError](err)
	return ok
}

// IsPermanent reports whether the same request cannot succeed a moment later: the message, the stream's settings or limits, or
// the connection are at fault. Errors that a change of leader can cause are not.
func IsPermanent(err error) bool {
	if isUnsent(err) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	request := api.Code >= http.StatusBadRequest && api.Code < http.StatusInternalServerError && api.Code != http.StatusTooManyRequests
	return IsFull(err) || request && api.ErrorCode != codeInProcess && !IsRefused(err)
}

// IsUnknown reports whether a request may have been carried out, or may be when it is repeated: no answer came, or an answer about the
// server and not about the request.
func IsUnknown(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return !isUnsent(err)
	}
	return api.Code == http.StatusServiceUnavailable || api.ErrorCode == codeInProcess
}

// isUnsent reports whether nats.go refused to send a message, as it would refuse it again.
func isUnsent(err error) bool {
	return slices.ContainsFunc([]error{
		nats.ErrBadHeaderMsg, nats.ErrBadSubject, nats.ErrConnectionClosed, nats.ErrHeadersNotSupported, nats.ErrInvalidMsg, nats.ErrMaxPayload,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}

// HasCode reports whether err is the server's answer with one of the codes.
func HasCode(err error, codes ...jetstream.ErrorCode) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode)
}

// Unanswered adds the last refusal that the connection received to the error of a request that got no answer: the server leaves a request
// without permission unanswered, and reports the refusal separately.
func Unanswered(nc *nats.Conn, err error) error {
	if last := nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w (the connection's last error: %w)", err, last)
	}
	return err
}

func description(err error) string {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Description
	}
	return ""
}
