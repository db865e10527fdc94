package contracts

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// shrinks reports whether a stream with the declared setting keeps less, or in fewer places, and then names the messages that it
// would drop at once.
func shrinks(field string, info jetstream.StreamInfo, want jetstream.StreamConfig) (less bool, drops string) {
	got, state := info.Config, info.State
	switch field {
	case "num_replicas":
		return smaller(want.Replicas, got.Replicas), fmt.Sprintf("the copies on %d of %d servers", got.Replicas-want.Replicas, got.Replicas)
	case "max_age":
		if state.Msgs > 0 && want.MaxAge > 0 && time.Since(state.FirstTime) > want.MaxAge {
			drops = "the messages older than " + want.MaxAge.String()
		}
		return smaller(want.MaxAge, got.MaxAge), drops
	case "max_bytes":
		return smaller(want.MaxBytes, got.MaxBytes), excess(state.Bytes, want.MaxBytes, "bytes of the oldest messages")
	case "max_msgs":
		return smaller(want.MaxMsgs, got.MaxMsgs), excess(state.Msgs, want.MaxMsgs, "of the oldest messages")
	case "max_msgs_per_subject":
		return smaller(want.MaxMsgsPerSubject, got.MaxMsgsPerSubject),
			fmt.Sprintf("all but the newest %d messages of each subject", want.MaxMsgsPerSubject)
	case "max_consumers":
		return smaller(want.MaxConsumers, got.MaxConsumers), ""
	case "max_msg_size":
		return smaller(want.MaxMsgSize, got.MaxMsgSize), ""
	case "duplicate_window":
		return want.Duplicates < got.Duplicates, ""
	case "retention":
		return got.Retention == jetstream.LimitsPolicy, "the messages that no consumer wants"
	case "discard":
		return want.Discard == jetstream.DiscardOld, ""
	case "subjects":
		return slices.ContainsFunc(got.Subjects, func(s string) bool { return !slices.Contains(want.Subjects, s) }), ""
	}
	return false, ""
}

// smaller reports whether a limit is below another one. 0 and less stand for no limit.
func smaller[T ~int | ~int32 | ~int64](want, got T) bool { return want > 0 && (got <= 0 || want < got) }

// excess says how much of a total is above a limit.
func excess(total uint64, limit int64, of string) string {
	if limit <= 0 || total <= uint64(limit) || total > math.MaxInt64 {
		return ""
	}
	return fmt.Sprintf("%d %s", total-uint64(limit), of)
}
