package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	sources "github.com/expediter-io/expediter/services/importer/source"
)

// addressLine is a line of a file of addresses, and what has become of it.
type addressLine struct {
	Line int    `json:"line"`
	URL  string `json:"url"`

	// SameAs is the line before with the same source, whose job this line has too; 0 for none.
	SameAs int `json:"same_as,omitempty"`

	Job   *importer.Job `json:"job,omitempty"`
	Error string        `json:"error,omitempty"` // the reason why there is no job

	key string
}

// runFrom imports the addresses of a file.
func (f *importFlags) runFrom(ctx context.Context) error {
	lines, err := f.addresses(ctx)
	if err != nil {
		return err
	}
	stopped := f.submitAll(ctx, lines)
	if f.follow && stopped == nil {
		stopped = f.followAll(ctx, lines)
	}
	out := f.rows(f.format, "No addresses.", "LINE", "STATUS", "JOB", "SOURCE~", "RESULT")
	same, bad, running := 0, 0, 0
	for _, line := range lines {
		status, id, result := "-", "", line.Error
		if line.Job != nil {
			status, id, result = string(line.Job.Status), line.Job.JobID, resultOf(*line.Job)
		}
		switch {
		case line.SameAs > 0:
			same++
			result = fmt.Sprintf("the same source as line %d", line.SameAs)
		case line.Job == nil, f.follow && line.Job.Status == contracts.ImportFailed:
			bad++
		case !line.Job.Status.Final():
			running++
		}
		out.Add(line, line.Line, status, id, line.URL, result)
	}
	out.Notef("%s: %d without a result, %d of a source that another line has.", counted(len(lines), "line"), bad, same)
	switch {
	case stopped != nil:
		err = fmt.Errorf("%w; with --key, the same command goes on", stopped)
	case bad > 0:
		err = fmt.Errorf("some addresses have no result: %d of %d", bad, len(lines))
	case f.follow && running > 0:
		err = fmt.Errorf("%w: %d of %d", errStillRunning, running, len(lines))
	}
	return out.Close(err)
}

// resultOf describes where an import stands.
func resultOf(job importer.Job) string {
	switch job.Status {
	case contracts.ImportReady:
		return job.Title
	case contracts.ImportFailed:
		return job.Error + " (" + string(job.Code) + ")"
	default:
		return doing(job)
	}
}

// addresses reads the lines of the file: an address on each, and comments, which begin with #.
func (f *importFlags) addresses(ctx context.Context) ([]addressLine, error) {
	data, err := f.read(ctx, f.from, maxSource)
	if err != nil {
		return nil, err
	}
	var lines []addressLine
	first := map[string]int{} // lines by the identities of their sources
	for n, text := range strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
		text, _, _ = strings.Cut(" "+strings.ReplaceAll(text, "\t", " "), " #") // without a space before, it begins a fragment
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		line := addressLine{Line: n + 1, URL: text}
		id, err := sources.Identify(sources.Request{Encoding: f.encoding, Language: f.language, Type: f.kind, URL: text})
		if wrong, refused := errors.AsType[*sources.Error](err); refused {
			line.Error = wrong.Message
		} else if line.SameAs = first[id]; line.SameAs == 0 {
			first[id] = line.Line
		}
		if f.key != "" {
			line.key = f.key + ":" + id
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// submitAll hands in the addresses. One that is refused keeps no other out; an importer that does not answer ends it.
func (f *importFlags) submitAll(ctx context.Context, lines []addressLine) (stopped error) {
	jobs := map[int]*importer.Job{}
	for i := range lines {
		line := &lines[i]
		switch {
		case line.Error != "":
		case line.SameAs > 0:
			line.Job = jobs[line.SameAs]
		case stopped != nil:
			line.Error = "not handed in"
		default:
			sub := f.submission()
			sub.URL, sub.Key = line.URL, line.key
			job, _, err := f.api.Submit(ctx, sub)
			if refused, ok := errors.AsType[*api.RefusedError](err); ok {
				line.Error = refused.Error()
			} else if err != nil {
				line.Error, stopped = "not handed in", advise(err)
			} else {
				line.Job, jobs[line.Line] = &job, &job
			}
		}
	}
	return stopped
}

// followAll waits for the ends of the imports, for the time limit in all.
func (f *importFlags) followAll(ctx context.Context, lines []addressLine) error {
	limit, cancel := context.WithTimeoutCause(ctx, f.timeout, errStillRunning)
	defer cancel()
	for _, line := range lines {
		if line.Job == nil || line.SameAs > 0 || line.Job.Status.Final() {
			continue
		}
		keep := func(job importer.Job) error {
			*line.Job = job
			return nil
		}
		err := f.api.Follow(limit, line.Job.JobID, keep)
		if limit.Err() != nil && ctx.Err() == nil { // it may have ended while the command waited for others
			var job importer.Job
			if job, err = f.api.Job(ctx, line.Job.JobID); err == nil {
				err = keep(job)
			}
		}
		if err != nil {
			return advise(err)
		}
	}
	return nil
}
