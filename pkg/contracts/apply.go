package contracts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/jsretry"
)

// Action is what Apply does to a stream.
type Action string

// The actions.
const (
	// ActionNone leaves a stream that is as declared.
	ActionNone Action = "none"
	// ActionCreate makes a stream that is missing.
	ActionCreate Action = "create"
	// ActionUpdate changes a stream in place. Smaller limits drop what does not fit any more at once.
	ActionUpdate Action = "update"
	// ActionRefuse leaves a stream that differs only in settings that no update can change: an operator has to move its
	// messages to a new stream.
	ActionRefuse Action = "refuse"
)

// Change is what Apply did, or would do, to one stream.
type Change struct {
	// Stream is the name of the stream.
	Stream string `json:"stream"`
	// Action is what was done.
	Action Action `json:"action"`
	// Differences are those that were found, with Fixed set on those that the action removes.
	Differences []Difference `json:"differences,omitempty"`
	// Err is why the action failed, nil when it succeeded.
	Err error `json:"-"`
}

// ApplyOptions are the options of Apply.
type ApplyOptions struct {
	// DryRun only reports. Defaults to false.
	DryRun bool

	// Wait bounds how long Apply retries while the servers' cluster is not ready. Defaults to jsretry.Wait, a minute.
	Wait time.Duration
}

// Check compares the streams on the server with their declarations and returns every difference, nil when there is
// none. One round trip for each stream. Like Apply it waits for a cluster that is not ready. The error is one of the
// server or of the connection.
func Check(ctx context.Context, js jetstream.StreamManager, want []jetstream.StreamConfig) ([]Difference, error) {
	changes, err := Apply(ctx, js, want, ApplyOptions{DryRun: true})
	if err != nil {
		return nil, err
	}
	var all []Difference
	for _, change := range changes {
		all = append(all, change.Differences...)
	}
	return all, nil
}

// Apply creates missing streams and updates the settings that differ and can be updated. Placement and metadata that
// operators added to a stream stay. Up to two round trips for each stream.
//
// It reports one Change for each declaration, in the same order, and goes on after a failure; the error joins
// all failures. Streams that are not declared are left alone.
//
// A cluster that elects a leader, or in which a node has restarted, refuses streams for a while. Apply then tries
// again, for up to Wait. After that it returns jsretry.ErrNotReady for the stream, and asks once for each of the
// others.
func Apply(
	ctx context.Context, js jetstream.StreamManager, want []jetstream.StreamConfig, options ApplyOptions,
) ([]Change, error) {
	changes := make([]Change, 0, len(want))
	var errs []error
	options.Wait = cmp.Or(options.Wait, jsretry.Wait)
	for _, config := range want {
		change := applyReady(ctx, js, config, options)
		if change.Err != nil {
			if errors.Is(change.Err, jsretry.ErrNotReady) {
				options.Wait = 0
			}
			change.Err = fmt.Errorf("contracts: stream %s: %w", config.Name, change.Err)
			errs = append(errs, change.Err)
		}
		changes = append(changes, change)
	}
	return changes, errors.Join(errs...)
}

// applyReady is applyOne, once the cluster is ready.
func applyReady(
	ctx context.Context, js jetstream.StreamManager, want jetstream.StreamConfig, options ApplyOptions,
) (change Change) {
	err := jsretry.Do(ctx, options.Wait, func(ctx context.Context) error {
		before := change
		change = applyOne(ctx, js, want, options)
		if change.Action == ActionNone && before.Action != "" { // a try without an answer has done it, or the stream is not known
			change.Action, change.Differences = before.Action, before.Differences
		}
		return change.Err
	})
	change.Err = err
	return change
}

func applyOne(
	ctx context.Context, js jetstream.StreamManager, want jetstream.StreamConfig, options ApplyOptions,
) Change {
	change := Change{Stream: want.Name, Action: ActionNone}
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		change.Action = ActionCreate
		change.Differences = []Difference{{Stream: want.Name, Missing: true, Fixed: true}}
		if !options.DryRun {
			_, change.Err = js.CreateStream(ctx, want)
		}
		return change
	}
	if err != nil {
		change.Err = err
		return change
	}
	got := stream.CachedInfo().Config
	if change.Differences, change.Err = compare(got, want); change.Err != nil || len(change.Differences) == 0 {
		return change
	}
	update, fixes, err := merge(got, want, change.Differences)
	switch {
	case err != nil:
		change.Err = err
	case !fixes:
		change.Action = ActionRefuse
	default:
		change.Action = ActionUpdate
		if !options.DryRun {
			_, change.Err = js.UpdateStream(ctx, update)
		}
	}
	return change
}

// merge returns the server's configuration with every fixable difference set as declared.
func merge(
	got, want jetstream.StreamConfig, differences []Difference,
) (update jetstream.StreamConfig, fixes bool, err error) {
	merged, err := toMap(got)
	if err != nil {
		return update, false, err
	}
	declared, err := toMap(want)
	if err != nil {
		return update, false, err
	}
	for _, difference := range differences {
		if !difference.Fixed {
			continue
		}
		fixes = true
		if value, ok := declared[difference.Field]; ok {
			merged[difference.Field] = value
		} else {
			delete(merged, difference.Field)
		}
	}
	raw, err := json.Marshal(merged)
	if err != nil {
		return update, false, fmt.Errorf("encode: %w", err)
	}
	if err := json.Unmarshal(raw, &update); err != nil {
		return update, false, fmt.Errorf("decode: %w", err)
	}
	update.Metadata = maps.Clone(got.Metadata)
	if len(want.Metadata) > 0 {
		if update.Metadata == nil {
			update.Metadata = make(map[string]string)
		}
		maps.Copy(update.Metadata, want.Metadata)
	}
	return update, fixes, nil
}
