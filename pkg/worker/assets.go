package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const prepareTimeout = 5 * time.Second

// prepare checks, or with AutoCreate makes, everything on the server that the worker needs. again is true when the worker has prepared all
// of it before.
func (w *Worker) prepare(ctx context.Context, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	bucket := w.prepareBucket(ctx, w.cfg.Bucket, false)
	if bucket == nil {
		bucket = w.readPauses(ctx) // before the first job
	}
	errs := []error{bucket, w.prepareStream(ctx)}
	if _, missing := errors.AsType[*MissingError](errs[1]); missing && w.cfg.AutoCreate && !again {
		// Not again: who deletes the stream under a running worker, and makes another, chooses its settings.
		errs[1] = w.createStream(ctx, errs[1])
	}
	for _, c := range w.classes {
		if errs[1] == nil {
			errs = append(errs, w.prepareConsumer(ctx, c, again))
		}
	}
	if w.cfg.StepBucket != w.cfg.Bucket {
		errs = append(errs, w.prepareBucket(ctx, w.cfg.StepBucket, true))
	}
	if w.limited {
		errs = append(errs, w.prepareBucket(ctx, w.cfg.Bucket, true))
	}
	return errors.Join(append(errs, w.prepareDead(ctx))...)
}

// prepareConsumer prepares the consumer of a class. A work queue refuses a consumer while another consumer has one of its subjects, so a
// subject that moves between consumers takes a second try.
func (w *Worker) prepareConsumer(ctx context.Context, c *class, again bool) error {
	asset := "consumer " + w.cfg.Stream + "/" + c.consumer
	want := consumer.Config(c.consumer, w.cfg.AckWait, c.patterns)
	found, err := w.js.Consumer(ctx, w.cfg.Stream, c.consumer)
	switch {
	case err == nil:
		have := found.CachedInfo().Config
		w.noteConsumer(c, found)
		if again && consumer.Covers(consumer.Filters(have), want.FilterSubjects) {
			want.FilterSubjects = consumer.Filters(have) // a newer version of the worker has handlers that this version lacks
		}
		diff := consumer.Compare(have, want)
		if len(diff) == 0 {
			return nil
		}
		next := consumer.Adapt(have, want)
		if isOthers(found.CachedInfo(), want.FilterSubjects, again) {
			return &DriftError{Asset: asset, Differences: []string{fmt.Sprintf("a worker with other handlers pulls from it, %v instead of %v: "+
				"give each its own Config.Consumer, or stop the other", consumer.Filters(have), want.FilterSubjects)}}
		}
		if !w.cfg.AutoCreate || w.cfg.KeepConsumers || len(consumer.Compare(next, want)) > 0 {
			return w.driftError(asset, diff)
		}
		found, err = consumer.Change(ctx, w.js, w.cfg.Stream, have, next)
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return &DriftError{Asset: asset, Differences: []string{"deliver_subject must be empty (a pull consumer): delete it"}}
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: asset, Cause: err, mends: true}
	default:
		found, err = w.js.CreateConsumer(ctx, w.cfg.Stream, want)
	}
	if err != nil {
		return fmt.Errorf("worker: create or update %s: %w", asset, consumer.Taken(err, want.FilterSubjects))
	}
	w.noteConsumer(c, found)
	return nil
}

// isOthers reports whether a consumer belongs to workers with other handlers, that pull from it now. If two kinds of workers gave it their
// patterns in turn, each would end the other's requests, without an end. A worker that starts takes over the consumer of one with some of
// its patterns, as a newer version does. A worker that was running before gives way.
func isOthers(now *jetstream.ConsumerInfo, want []string, again bool) bool {
	have := consumer.Filters(now.Config)
	shares := slices.ContainsFunc(have, func(filter string) bool {
		return slices.ContainsFunc(want, func(pattern string) bool { return subject.Overlap(filter, pattern) })
	})
	return now.NumWaiting > 0 && (again || !shares) && !consumer.Covers(have, want) && !consumer.Covers(want, have)
}

// driftError returns the error for the settings of a consumer with which the worker cannot work.
func (w *Worker) driftError(asset string, differences []consumer.Difference) error {
	e := &DriftError{Asset: asset, mends: !w.cfg.AutoCreate && !w.cfg.KeepConsumers}
	for _, d := range differences {
		e.Differences = append(e.Differences, d.String())
	}
	return e
}

// noteConsumer notes the time at which a consumer was made. If the class had another consumer until now, the former one delivered the jobs
// that the worker holds.
func (w *Worker) noteConsumer(c *class, found jetstream.Consumer) {
	created := found.CachedInfo().Created.UnixNano()
	if before := c.created.Swap(created); before != 0 && before != created {
		w.contact.lose()
		w.contact.resume()(found.CachedInfo().TimeStamp)
		w.deliveries.orphan(c.consumer)
	}
}

// prepareStream makes sure that the stream takes jobs of each handler, and shows the end of an ordered job.
func (w *Worker) prepareStream(ctx context.Context) error {
	cfg, err := streamConfig(ctx, w.js, w.cfg.Stream)
	if err != nil {
		return err
	}
	w.shared.Store(cfg.Retention != jetstream.WorkQueuePolicy)
	var diff []string
	if w.ordered && cfg.Retention != jetstream.WorkQueuePolicy {
		diff = append(diff, "retention must be workqueue for Policy.Ordered: there a job goes when it ends")
	}
	shown := cfg.Subjects[:min(len(cfg.Subjects), maxFilters)]
	elsewhere := cfg.Mirror != nil || len(cfg.Sources) > 0 || cfg.SubjectTransform != nil // messages come under other subjects
	for _, r := range w.routes {
		taken := elsewhere
		for _, of := range cfg.Subjects {
			switch overlaps := subject.Overlap(of, r.pattern); {
			case overlaps && jobmsg.KindOf(of) != jobmsg.Job:
				diff = append(diff,
					fmt.Sprintf("the handler's pattern %q also takes %q, which are not jobs: begin it as the jobs begin", r.pattern, of))
			case overlaps:
				taken = true
			}
		}
		if !taken {
			diff = append(diff, fmt.Sprintf("subjects are %q: no job matches the handler's pattern %q", shown, r.pattern))
		}
	}
	if len(diff) > 0 {
		return &DriftError{Asset: "stream " + w.cfg.Stream, Differences: diff}
	}
	return nil
}

// checkAssets finds out whether the stream, or a consumer, takes the jobs of a handler no longer. Then the worker pulls on without an error
// and gets no job. Two round trips, and one for each further priority.
func (w *Worker) checkAssets(ctx context.Context) {
	err := w.prepareStream(ctx)
	for _, c := range w.classes {
		found, failed := w.consumer(ctx, c)
		if failed != nil {
			return // pulling from it shows that it is missing
		}
		have, want := found.CachedInfo().Config, consumer.Config(c.consumer, w.cfg.AckWait, c.patterns)
		if !consumer.Covers(consumer.Filters(have), c.patterns) {
			err = errors.Join(err, w.driftError("consumer "+w.cfg.Stream+"/"+c.consumer, consumer.Compare(have, want)))
		}
	}
	if err == nil || isFinal(err) {
		w.judge(func(c *condition) { c.astray = err })
	}
}

// prepareBucket checks a bucket, or with AutoCreate makes it. A strict bucket, for steps or limits, needs more settings: its records must
// not be lost.
func (w *Worker) prepareBucket(ctx context.Context, bucket string, strict bool) error {
	name := "KV_" + bucket
	asset := "bucket " + bucket
	stream, err := w.js.Stream(ctx, name)
	switch {
	case err == nil:
		if diff := bucketDrift(stream.CachedInfo().Config, strict); len(diff) > 0 {
			return &DriftError{Asset: asset, Differences: diff}
		}
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("worker: look up %s: %w", asset, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: asset, Cause: err, maker: "worker.CreateBucket", mends: true}
	}
	return CreateBucket(ctx, w.js, bucket)
}

// CreateBucket makes a bucket for the records of workers, such as the Config.Bucket or StepBucket, unless it exists. It is for laptops,
// tests and embedded servers: it has one replica. One round trip.
func CreateBucket(ctx context.Context, js jetstream.JetStream, bucket string) error {
	return create(ctx, js, jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1,
		AllowDirect: true, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
	})
}

// CreateStream makes the stream of [StreamConfig] unless a stream of that name exists. It is for laptops, tests and embedded servers: the
// stream has one replica. One round trip.
func CreateStream(ctx context.Context, js jetstream.JetStream, name, jobs string) error {
	return create(ctx, js, StreamConfig(name, jobs))
}

func create(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	// With other settings the server refuses to create a stream that exists.
	if _, err := js.CreateStream(ctx, cfg); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("worker: create stream %s with the subjects %s: %w", cfg.Name, strings.Join(cfg.Subjects, ", "), err)
	}
	return nil
}

// createStream makes the stream of the jobs. It returns the reason that the stream is missing if the patterns of the handlers do not tell
// its subjects.
func (w *Worker) createStream(ctx context.Context, missing error) error {
	cfg := StreamConfig(w.cfg.Stream, "")
	cfg.Subjects = nil
	for _, r := range w.routes {
		first, _, more := strings.Cut(r.pattern, ".")
		if first == "*" || !more {
			return missing
		}
		if subjects := jobmsg.Subjects(first + ".>"); !slices.Contains(cfg.Subjects, subjects[0]) {
			cfg.Subjects = append(cfg.Subjects, subjects...)
		}
	}
	if err := create(ctx, w.js, cfg); err != nil {
		return err
	}
	return w.prepareStream(ctx)
}

// bucketDrift returns every setting of a bucket's stream that is not as required.
func bucketDrift(have jetstream.StreamConfig, strict bool) []string {
	var diff []string
	if !have.AllowMsgTTL {
		diff = append(diff, "allow_msg_ttl is false, must be true")
	}
	if !strict {
		return diff
	}
	if have.MaxMsgsPerSubject != 1 {
		diff = append(diff, fmt.Sprintf("max_msgs_per_subject is %d, must be 1 (of a record that has gone, an older one would come back)",
			have.MaxMsgsPerSubject))
	}
	if have.SubjectDeleteMarkerTTL != 0 {
		diff = append(diff, "subject_delete_marker_ttl is on, must be off (a marker can wipe a record that was just written)")
	}
	if have.Discard != jetstream.DiscardNew && (have.MaxBytes > 0 || have.MaxMsgs > 0) {
		diff = append(diff, "discard is old, must be new (a full bucket would evict records)")
	}
	return diff
}

// deadAdvisories are the subjects of the server's notes about messages that no worker could work. The stream of dead letters takes them
// too, unless another stream does: of two streams of dead letters, each takes the subjects that the other does not.
var deadAdvisories = []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"}

// prepareDead makes sure that a stream takes the dead letters. Without this check, a missing stream would show only when the first job
// fails.
func (w *Worker) prepareDead(ctx context.Context) error {
	letters := w.cfg.DeadSubject + "." + w.cfg.Stream
	_, err := w.js.StreamNameBySubject(ctx, letters+".check")
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("worker: look up the stream of %s.check: %w", letters, err)
	case !w.cfg.AutoCreate:
		return &MissingError{Asset: "stream for dead letters on " + letters + ".>", Cause: err, mends: true}
	}
	name := strings.ToUpper(strings.ReplaceAll(w.cfg.DeadSubject, ".", "_"))
	subjects := []string{w.cfg.DeadSubject + ".>"}
	for _, advisories := range deadAdvisories {
		owner, err := w.js.StreamNameBySubject(ctx, advisories)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && owner == name:
			subjects = append(subjects, advisories)
		case err != nil:
			return fmt.Errorf("worker: look up the stream of %s: %w", advisories, err)
		}
	}
	_, err = w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: subjects, AllowDirect: true, MaxAge: deadKept, Duplicates: deadWindow,
	})
	if err != nil {
		return fmt.Errorf("worker: create stream %s: %w", name, err)
	}
	return nil
}

// StreamConfig returns the configuration of a stream of jobs: a work queue with the subject of the jobs, such as "jobs.>", the subjects
// "jobs-later.>" for delayed jobs and "jobs-done.>" for the records of unique jobs, and the message TTLs, schedules and roll-ups that
// these need. The caller sets storage, replicas and limits; a limit with the policy DiscardNew excludes schedules.
//
// Jobs of different first tokens do not belong in one stream: a key is the part of the subject behind the first token, so
// jobs.mail.7 and tasks.mail.7 would exclude each other there.
func StreamConfig(name, jobs string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: jobmsg.Subjects(jobs), Retention: jetstream.WorkQueuePolicy,
		AllowDirect: true, AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true,
	}
}

// ensureStream makes sure, once, that the stream takes the messages that a job needs beside its own, and that a consumer takes
// the job.
func (c *Client) ensureStream(ctx context.Context, p *plan) error {
	if err := c.checkTaken(ctx, p.key.Job()); err != nil {
		return err
	}
	if p.due.IsZero() && p.keep == 0 && !p.unrecorded {
		return nil
	}
	if seen := c.stream.Load(); seen != nil && len(c.lacking(*seen, p)) == 0 {
		return nil
	}
	// When the stream cannot be read, the publication returns the error. An unrecorded job needs no particular configuration.
	if err := c.checkStream(ctx, p); isFinal(err) && !p.unrecorded {
		return err
	}
	return nil
}

// checkStream reads the stream's configuration and returns an error that names the settings and subjects that a job lacks there.
func (c *Client) checkStream(ctx context.Context, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	cfg, err := streamConfig(ctx, c.js, c.cfg.Stream)
	if err != nil {
		return err
	}
	c.stream.Store(&cfg)
	if diff := c.lacking(cfg, p); len(diff) > 0 {
		return &DriftError{Asset: "stream " + c.cfg.Stream, Differences: diff}
	}
	return nil
}

// lacking returns every missing setting of a stream that a job needs.
func (c *Client) lacking(cfg jetstream.StreamConfig, p *plan) []string {
	var diff []string
	need := func(ok bool, format string, args ...any) {
		if !ok {
			diff = append(diff, fmt.Sprintf(format, args...))
		}
	}
	takes := func(to string) {
		covered := slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return subject.Matches(pattern, to) })
		need(covered, "subjects do not cover %q", to)
	}
	takes(p.key.Job())
	later, recorded := !p.due.IsZero(), p.keep > 0
	if later {
		takes(p.to)
		need(cfg.AllowMsgSchedules, "allow_msg_schedules is false, must be true")
	}
	if recorded {
		takes(p.key.Done())
		need(cfg.AllowMsgTTL, "allow_msg_ttl is false, must be true")
	}
	if later || recorded {
		need(cfg.AllowRollup && !cfg.DenyPurge, "allow_rollup_hdrs must be true and deny_purge false")
	}
	return diff
}

const (
	// takersKept is the time for which a stream counts as one without consumers, or as one whose consumers cannot be listed.
	takersKept = 10 * time.Second

	// takersAgain is the wait between two looks at the consumers of workers that may be about to start.
	takersAgain = 100 * time.Millisecond

	// takersWithin bounds the request for a list of consumers: an account without the permission gets no answer.
	takersWithin = 250 * time.Millisecond

	maxFilters = 20 // that are named
)

// UntakenError is returned when a stream has consumers, and none takes the subject of a job: no worker would ever work it.
type UntakenError struct {
	// Filters are the subjects that the consumers take, 20 at most.
	Filters []string

	// Stream is the stream.
	Stream string

	// Subject is the subject of the job, with its key.
	Subject string
}

// Error implements error.
func (e *UntakenError) Error() string {
	return fmt.Sprintf("worker: no consumer of stream %s takes %q, only %s: register a handler for it and start its worker, or set "+
		"ClientConfig.AllowUntaken", e.Stream, e.Subject, strings.Join(e.Filters, ", "))
}

// checkTaken returns an [*UntakenError] when no consumer takes a subject. No round trip for subjects of a consumer that was seen before,
// otherwise one for each 256 consumers. When the consumers cannot be listed, or there is none, it returns nil. A worker makes its
// consumers one after the other: while the youngest is new, checkTaken waits for the next.
func (c *Client) checkTaken(ctx context.Context, to string) error {
	if c.cfg.AllowUntaken {
		return nil
	}
	if seen := c.takers.Load(); seen != nil {
		if seen.Of(to) != nil || len(seen.Filters) == 0 && time.Since(seen.From) < takersKept {
			return nil
		}
	}
	for {
		within, cancel := context.WithTimeout(ctx, takersWithin)
		now, _ := jobmsg.ListTakers(within, c.api, c.cfg.Stream) // nothing is known then
		cancel()
		c.takers.Store(now)
		if now.Of(to) != nil || len(now.Filters) == 0 {
			return nil
		}
		if now.Settled || !retry.Sleep(ctx, takersAgain) {
			return &UntakenError{Filters: now.Filters[:min(len(now.Filters), maxFilters)], Stream: c.cfg.Stream, Subject: to}
		}
	}
}

// DriftError is returned when a consumer, bucket or stream on the server has settings with which the worker cannot work.
type DriftError struct {
	// Asset names the consumer, bucket or stream, such as "consumer JOBS/enricher".
	Asset string

	// Differences has one line for each setting: its value and the required value.
	Differences []string

	mends bool // Config.AutoCreate does
}

// Error implements error.
func (e *DriftError) Error() string {
	return fmt.Sprintf("worker: %s is not set as needed: %s (apply the declared settings%s)",
		e.Asset, strings.Join(e.Differences, "; "), orAutoCreate(e.mends))
}

// MissingError is returned when a consumer, bucket or stream that the worker needs does not exist on the server.
type MissingError struct {
	// Asset names the consumer, bucket or stream, such as "bucket jobs".
	Asset string

	// Cause is the server's answer.
	Cause error

	maker string // the function that creates it, "" for none
	mends bool   // Config.AutoCreate does
}

// Error implements error.
func (e *MissingError) Error() string {
	create := "create it"
	if e.maker != "" {
		create += " with " + e.maker
	}
	return fmt.Sprintf("worker: %s is missing: %v (%s%s)", e.Asset, e.Cause, create, orAutoCreate(e.mends))
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Cause }

// orAutoCreate returns the advice to let a worker create or change an asset, if a worker can.
func orAutoCreate(mends bool) string {
	if !mends {
		return ""
	}
	return ", or set Config.AutoCreate"
}

// streamConfig reads the configuration of a stream of jobs. One round trip.
func streamConfig(ctx context.Context, js jetstream.JetStream, stream string) (cfg jetstream.StreamConfig, err error) {
	found, err := js.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return cfg, &MissingError{Asset: "stream " + stream, Cause: err, maker: "worker.CreateStream", mends: true}
	case err != nil:
		return cfg, fmt.Errorf("worker: look up stream %s: %w", stream, err)
	}
	return found.CachedInfo().Config, nil
}
