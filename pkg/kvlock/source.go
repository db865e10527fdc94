package kvlock

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// source is where changes of the bucket are pushed.
type source struct {
	subject string // with a wildcard at its end; "" when the bucket does not republish all its keys as they are
	trim    string // what republished subjects have before the key
}

// newSource understands what StreamConfig sets. Any other mapping of subjects is left alone, and the bucket is watched.
func newSource(prefix string, republish *jetstream.RePublish) source {
	if republish == nil || republish.HeadersOnly {
		return source{}
	}
	root, found := strings.CutSuffix(republish.Destination, ">")
	all := republish.Source == "" || republish.Source == ">" || republish.Source == prefix+">"
	if !found || !all || strings.ContainsAny(root, "*{") {
		return source{}
	}
	trim := root + prefix
	if republish.Source == prefix+">" {
		trim = root // the wildcard stands for the key alone
	}
	return source{subject: trim + ">", trim: trim}
}

// subscribe gets pushes from what the bucket republishes. A bucket that does not is watched with one KV watcher, which
// costs a consumer, and stalls for many seconds when the server that hosts it stops; the reading goes on meanwhile.
func (b *board) subscribe() (unsubscribe func(), err error) {
	if b.source.subject == "" {
		return b.subscribeWatcher()
	}
	sub, err := b.store.nc.Subscribe(b.source.subject, b.pushed)
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by start
	}
	return func() { _ = sub.Unsubscribe() }, nil //nolint:errcheck // the connection is closed, then
}

func (b *board) subscribeWatcher() (unsubscribe func(), err error) {
	ctx, cancel := b.store.bound(b.store.ending)
	defer cancel()
	kv, err := b.store.js.KeyValue(ctx, b.store.bucket)
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by start
	}
	watcher, err := kv.WatchAll(b.store.ending, jetstream.UpdatesOnly(), jetstream.MetaOnly())
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by start
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for entry := range watcher.Updates() {
			switch {
			case entry == nil:
			case entry.Key() == purgeKey:
				b.readPrefixSoon("", 0)
			default:
				b.readSoon(entry.Key())
			}
		}
	}()
	return func() {
		_ = watcher.Stop() //nolint:errcheck // the connection is closed, then
		<-ended
	}, nil
}
