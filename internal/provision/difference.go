package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
)

// Difference is one setting of a stream or consumer on the server that is not as declared.
type Difference struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Consumer is the name of the consumer, "" for the stream itself.
	Consumer string `json:"consumer,omitempty"`
	// Missing reports whether the stream or consumer does not exist; the other fields are empty then.
	Missing bool `json:"missing,omitempty"`
	// Field is the setting as the JetStream API names it, such as "max_age".
	Field string `json:"field,omitempty"`
	// Got is the server's value, as JSON, or as a duration for a setting that is one; "" when it is not set.
	Got string `json:"got,omitempty"`
	// Want is the declared value in the same form.
	Want string `json:"want,omitempty"`
	// Shrinks reports whether the declared value keeps less, or in fewer places, than the server's.
	Shrinks bool `json:"shrinks,omitempty"`
	// Drops describes, for a person, the messages that the server would drop at once if the setting were as declared; "" for none.
	Drops string `json:"drops,omitempty"`
	// Fixed reports whether the difference is, or would be, removed.
	Fixed bool `json:"fixed"`
}

// durationFields hold nanoseconds.
var durationFields = []string{"max_age", "duplicate_window", "subject_delete_marker_ttl"}

// ownedByOperators are settings that are compared only if the declaration sets them. In the metadata this holds for
// each key by itself; the server adds its own keys, which start with "_nats.".
var ownedByOperators = []string{"first_seq", "metadata", "placement"}

// Compare lists the differences of a stream and its declaration, in alphabetical order of the settings. No round
// trip.
func Compare(info jetstream.StreamInfo, want jetstream.StreamConfig) ([]Difference, error) {
	got := info.Config
	got.Metadata = maps.Clone(got.Metadata)
	maps.DeleteFunc(got.Metadata, func(key, _ string) bool {
		_, declared := want.Metadata[key]
		return !declared
	})
	have, err := toMap(got)
	if err != nil {
		return nil, err
	}
	declared, err := toMap(want)
	if err != nil {
		return nil, err
	}
	fields := maps.Clone(have)
	maps.Copy(fields, declared)
	var differences []Difference
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if bytes.Equal(have[field], declared[field]) ||
			declared[field] == nil && slices.Contains(ownedByOperators, field) {
			continue
		}
		d := Difference{
			Stream: want.Name,
			Field:  field,
			Got:    show(field, have[field]),
			Want:   show(field, declared[field]),
			Fixed:  updatable(field, string(have[field]), string(declared[field])),
		}
		if less, drops := shrinks(field, info, want); less {
			d.Shrinks, d.Drops = true, drops
		}
		differences = append(differences, d)
	}
	return differences, nil
}

// toMap returns the settings in the JSON of the JetStream API, without those that are not set. A setting is not set if it is zero, or if
// it is -1 and the server takes 0 for the same.
func toMap(config jetstream.StreamConfig) (map[string]json.RawMessage, error) {
	config.Subjects = slices.Sorted(slices.Values(config.Subjects))
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false) // the values are shown to people, and subjects have ">"
	if err := encoder.Encode(config); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(raw.Bytes(), &settings); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	maps.DeleteFunc(settings, func(_ string, value json.RawMessage) bool {
		return slices.Contains([]string{"0", "-1", "false", `""`, "null", "{}", "[]"}, string(value))
	})
	return settings, nil
}

// updatable reports whether the server lets an update change a setting.
func updatable(field, got, want string) bool {
	const workQueue = `"workqueue"`
	switch field {
	case "name", "storage", "mirror", "first_seq", "template_owner", "allow_msg_counter", "persist_mode":
		return false
	case "retention":
		return got != workQueue && want != workQueue
	case "sealed", "deny_delete", "deny_purge", "allow_msg_ttl", "allow_msg_schedules":
		// They can be turned on and never off again.
		return want != ""
	}
	return true
}

func show(field string, value json.RawMessage) string {
	if value != nil && slices.Contains(durationFields, field) {
		var d time.Duration
		if err := json.Unmarshal(value, &d); err == nil {
			return d.String()
		}
	}
	return string(value)
}

// shrinks reports whether a stream with the declared setting keeps less, or in fewer places, and describes the messages that the server
// would then drop at once.
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

// smaller reports whether want is a lower limit than got. 0 and less stand for no limit.
func smaller[T ~int | ~int32 | ~int64](want, got T) bool { return want > 0 && (got <= 0 || want < got) }

// excess describes the part of a total above a limit.
func excess(total uint64, limit int64, of string) string {
	if limit <= 0 || total <= uint64(limit) || total > math.MaxInt64 {
		return ""
	}
	return fmt.Sprintf("%d %s", total-uint64(limit), of)
}

// explain names the limit of the server or the account that has no room for a stream, with its value where the server gives it, and returns
// other errors as they are. One round trip for an error about an account's limit.
func explain(ctx context.Context, js jetstream.StreamManager, want jetstream.StreamConfig, err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return err
	}
	limit, most := "max_file_store of the server", int64(0)
	switch api.ErrorCode {
	case jsapi.CodeNoPeers:
		if !strings.Contains(api.Description, "insufficient storage") {
			return err
		}
	case jsapi.CodeStreamTooBig:
		limit, most = "disk_max_stream_bytes of the account", limits(ctx, js).StoreMaxStreamBytes
	case jsapi.CodeStorageFull:
		if of := limits(ctx, js).MaxStore; of > 0 {
			limit, most = "max_file of the account", of
		}
	default:
		return err
	}
	if most > 0 {
		limit += fmt.Sprintf(", which is %d", most)
	}
	return fmt.Errorf("there is no room for a size of %d bytes in %s: raise it in the server's configuration and restart the server, "+
		"or reserve less (MaxBytes, --max-bytes): %w", want.MaxBytes, limit, err)
}

// limitsWait bounds the request for the limits of an account, however little time the failed try has left.
const limitsWait = 5 * time.Second

// limits returns the account's limits, zeros where the server does not give them.
func limits(ctx context.Context, js jetstream.StreamManager) jetstream.AccountLimits {
	all, ok := js.(interface {
		AccountInfo(ctx context.Context) (*jetstream.AccountInfo, error)
	})
	if !ok {
		return jetstream.AccountLimits{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitsWait)
	defer cancel()
	info, err := all.AccountInfo(ctx)
	if err != nil {
		return jetstream.AccountLimits{}
	}
	return info.Limits
}
