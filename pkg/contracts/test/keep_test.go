package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// grown is a declared stream as an operator has made it larger, with two old messages.
func grown(t *testing.T, js jetstream.JetStream, want jetstream.StreamConfig) {
	t.Helper()
	larger := want
	larger.MaxAge, larger.MaxBytes, larger.MaxConsumers, larger.MaxMsgs = 2*want.MaxAge, 2*want.MaxBytes, 2*want.MaxConsumers, 0
	larger.MaxMsgsPerSubject, larger.Subjects = -1, append(larger.Subjects, "more.>")
	check.OK(t, check.Err(js.CreateStream(t.Context(), larger)))
	for range 2 {
		check.OK(t, check.Err(js.Publish(t.Context(), "events.A.B", make([]byte, 1000))))
	}
}

// A stream that an operator has made larger stays so until --allow-shrink, and each difference names what lowering it drops.
func TestApplyKeepsWhatIsLarger(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	want := contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}})[1]
	want.MaxBytes, want.MaxMsgs, want.MaxMsgsPerSubject = 1500, 1, 1
	grown(t, js, want)
	fields := map[string]string{
		"max_age": "", "max_bytes": "bytes of the oldest messages", "max_consumers": "", "max_msgs": "1 of the oldest messages",
		"max_msgs_per_subject": "all but the newest 1 messages of each subject", "subjects": "",
	}
	for _, options := range []contracts.ApplyOptions{{}, {DryRun: true, AllowShrink: true}, {CreateOnly: true, AllowShrink: true}, {AllowShrink: true}} {
		changes, err := contracts.Apply(t.Context(), js, []jetstream.StreamConfig{want}, options)
		check.OK(t, err)
		removes := options.AllowShrink && !options.CreateOnly
		action := contracts.ActionKeep
		if removes {
			action = contracts.ActionUpdate
		}
		check.Require(t, len(changes) == 1 && changes[0].Action == action && len(changes[0].Differences) == len(fields),
			"%+v: got %+v", options, changes)
		for _, d := range changes[0].Differences {
			drops, known := fields[d.Field]
			check.That(t, known && d.Shrinks && d.Fixed == removes && drops == "" == (d.Drops == "") && strings.HasSuffix(d.Drops, drops),
				"%+v: got %+v, want it to drop %q", options, d, drops)
		}
		stream, err := js.Stream(t.Context(), want.Name)
		check.OK(t, err)
		left := uint64(2)
		if removes && !options.DryRun {
			left = 1
		}
		check.Same(t, fmt.Sprintf("%+v: messages are left", options), stream.CachedInfo().State.Msgs, left)
	}
}

// Fewer replicas are a loss, too.
func TestApplyKeepsReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	options := contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: 3, Services: []string{contracts.ServiceLock}}
	replicas := func() int {
		t.Helper()
		stream, err := js.Stream(t.Context(), "KV_"+contracts.BucketLocks)
		check.OK(t, err)
		return stream.CachedInfo().Config.Replicas
	}
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})))
	options.Replicas = 1
	changes, err := contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})
	if err != nil || replicas() != 3 || changes[0].Action != contracts.ActionKeep || changes[0].Differences[0].Drops != "the copies on 2 of 3 servers" {
		t.Errorf("got %+v, %v, and %d replicas, want 3", changes, err, replicas())
	}
	if _, err := contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{AllowShrink: true}); err != nil || replicas() != 1 {
		t.Errorf("got %v, and %d replicas, want 1", err, replicas())
	}
	options.Replicas = 3
	changes, err = contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})
	if d := changes[0].Differences; err != nil || replicas() != 3 || len(d) != 1 || d[0].Shrinks || d[0].Drops != "" {
		t.Errorf("got %+v, %v, and %d replicas, want 3 and nothing dropped", changes, err, replicas())
	}
}

func TestApplyConsumers(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	options := contracts.AssetOptions{Channels: []string{"pigeon"}, Services: []string{contracts.ServiceNotifier}}
	want := contracts.Consumers(options)
	apply := func(o contracts.ApplyOptions, action contracts.Action, n int) []contracts.Change {
		t.Helper()
		changes, err := contracts.ApplyConsumers(t.Context(), js, want, o)
		check.Require(t, err == nil && actions(changes)[action] == n, "got %+v, %v, want %s %d times", changes, err, action, n)
		return changes
	}
	apply(contracts.ApplyOptions{DryRun: true}, contracts.ActionCreate, len(want))
	check.Failsf(t, check.Err(contracts.ApplyConsumers(t.Context(), js, want, contracts.ApplyOptions{})),
		"consumers were made without their streams")
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})))
	apply(contracts.ApplyOptions{DryRun: true}, contracts.ActionCreate, len(want))
	apply(contracts.ApplyOptions{CreateOnly: true}, contracts.ActionCreate, len(want))
	apply(contracts.ApplyOptions{}, contracts.ActionNone, len(want))

	change := func(cfg jetstream.ConsumerConfig) {
		t.Helper()
		check.OK(t, check.Err(js.UpdateConsumer(t.Context(), contracts.StreamEvents, cfg)))
	}
	byHand := want[0].Config
	byHand.AckWait, byHand.MaxDeliver, byHand.Metadata = time.Minute, 3, map[string]string{"owner": "ops"}
	change(byHand)
	kept := apply(contracts.ApplyOptions{CreateOnly: true}, contracts.ActionKeep, 1)
	check.Same(t, "result", fmt.Sprint(kept[0].Differences), "[consumer EVENTS/notifier: max_deliver is 3, want -1 (left as it is)]")
	apply(contracts.ApplyOptions{}, contracts.ActionUpdate, 1)
	consumer, err := js.Consumer(t.Context(), contracts.StreamEvents, "notifier")
	check.OK(t, err)
	got := consumer.CachedInfo().Config
	check.That(t, got.AckWait == time.Minute && got.MaxDeliver == -1 && got.Metadata["owner"] == "ops", "got %+v", got)
	options.AckWait = 10 * time.Second
	want = contracts.Consumers(options)
	apply(contracts.ApplyOptions{}, contracts.ActionUpdate, len(want))

	check.OK(t, js.DeleteConsumer(t.Context(), contracts.StreamEvents, "notifier"))
	byHand = want[0].Config
	byHand.AckPolicy = jetstream.AckAllPolicy
	check.OK(t, check.Err(js.CreateConsumer(t.Context(), contracts.StreamEvents, byHand)))
	apply(contracts.ApplyOptions{}, contracts.ActionRefuse, 1)
}

// Each service has its own, and all of them together have everything.
func TestAssetsOfServices(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	consumers := 0
	for _, s := range contracts.Services() {
		options := contracts.AssetOptions{Services: []string{s}}
		for _, config := range contracts.Assets(options) {
			seen[config.Name]++
		}
		consumers += len(contracts.Consumers(options))
	}
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		want := 1
		if config.Name == contracts.StreamDead || config.Name == "KV_"+contracts.BucketJobs {
			want = 3
		}
		check.Same(t, config.Name+" is services", seen[config.Name], want)
	}
	all := len(contracts.Consumers(contracts.AssetOptions{}))
	check.That(t, consumers == all && all != 0, "the services have %d consumers, want %d", consumers, all)
}
