package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/source"
)

var errFileTooLarge = fmt.Errorf("the file is over the limit of %d MiB: %w", maxFile>>20, service.ErrBodyTooLarge)

const (
	// maxFile bounds a file; a larger one is not read to its end.
	maxFile = 8 << 20

	// maxProblems bounds the mistakes that an answer repeats.
	maxProblems = 100

	formType = "multipart/form-data"
)

// upload answers POST /v1/imports for a submission with its source, and keeps the source: a form (RFC 7578) with the file in the
// field "file", and the members of a submission in fields of their names.
func (a *api) upload(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.receive(w, r)
	if err != nil {
		return err
	}
	sub.IdempotencyKey = r.Header.Get("Idempotency-Key")
	answer, err := a.submit(r.Context(), sub)
	if err != nil {
		return err
	}
	return service.Reply(w, answer)
}

func (a *api) receive(w http.ResponseWriter, r *http.Request) (imports.Submission, error) {
	leave, err := a.uploads.enter(r.Context())
	if err != nil {
		return imports.Submission{}, err
	}
	defer leave()
	r.Body = http.MaxBytesReader(w, r.Body, maxFile+maxRequest)
	form, err := r.MultipartReader()
	if err != nil {
		return imports.Submission{}, errors.Join(service.ErrBody, err)
	}
	f := submissionForm{}
	if err := f.read(form); err != nil {
		return imports.Submission{}, err
	}
	if err := errors.Join(f.complete(), owned(r.Context(), f.sub.OwnerID)); err != nil {
		return imports.Submission{}, err
	}
	f.sub.URL, err = a.files.Put(r.Context(), f.sub.OwnerID, f.name, f.content)
	return f.sub, err
}

// submissionForm has the parts of a form that were read.
type submissionForm struct {
	content  []byte
	found    bool
	name     string
	problems contracts.Mistakes
	sub      imports.Submission
}

func (f *submissionForm) read(form *multipart.Reader) error {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return uploadError(err)
		}
		if part.FormName() == "file" {
			if f.found {
				f.bad("file", "is there twice: one job has one source")
			}
			f.found, f.name = true, part.FileName()
			if f.content, err = io.ReadAll(io.LimitReader(part, maxFile+1)); err != nil {
				return uploadError(err)
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxRequest+1))
		if err != nil {
			return uploadError(err)
		}
		f.set(part.FormName(), string(value))
	}
}

// uploadError returns the error of a form that could not be read.
func uploadError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errFileTooLarge
	}
	return errors.Join(service.ErrBody, err)
}

func (f *submissionForm) bad(field, problem string) {
	f.problems.Add(len(f.problems) < maxProblems, "/"+field, problem) // a form can have 100,000 fields
}

func (f *submissionForm) set(field, value string) {
	to, known := map[string]*string{
		"job_id": &f.sub.JobID, "encoding": &f.sub.Encoding, "language": &f.sub.Language, "owner_id": &f.sub.OwnerID,
		"priority": (*string)(&f.sub.Priority), "source_type": &f.sub.SourceType,
	}[field]
	if !known {
		f.bad(field[:min(len(field), 64)], "is not a field of a submission with a file")
		return
	}
	*to = value
}

// complete checks the form before its file is kept.
func (f *submissionForm) complete() error {
	switch {
	case !f.found:
		f.bad("file", "is required")
	case len(f.content) > maxFile:
		return errFileTooLarge
	case len(f.content) == 0:
		f.bad("file", "is empty")
	}
	if f.sub.SourceType == "" {
		f.sub.SourceType = source.KindOf(f.name, f.content)
	}
	if err := f.problems.In("form"); err != nil {
		return err
	}
	checked := f.sub
	checked.URL = contracts.NewFile(f.name, f.content).URL()
	return checked.Validate()
}

const (
	// uploadsAtOnce bounds the files that are in memory at a time. A named caller gets one more only while it has fewer than are free,
	// because a client may send its file slowly: one caller gets half of them, and another one gets in beside two.
	uploadsAtOnce = 8

	// uploadWait bounds the wait for room in memory. It is shorter than the time limit of an answer.
	uploadWait = 10 * time.Second
)

// room counts the files that are in memory.
type room struct {
	mu    sync.Mutex // guards the fields below
	all   int
	freed chan struct{}  // is closed when a file leaves
	of    map[string]int // counts by name of caller
}

// enter waits for room for a file of a request's caller, and reserves it until leave is called. The error matches [service.ErrBusy]
// when there is no room in time.
func (r *room) enter(ctx context.Context) (leave func(), err error) {
	caller := access.From(ctx).Name
	ctx, cancel := context.WithTimeout(ctx, uploadWait)
	defer cancel()
	for {
		entered, freed := r.try(caller)
		if entered {
			return func() { r.leave(caller) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("importer: no room for a file: %w", service.ErrBusy)
		}
	}
}

func (r *room) try(caller string) (entered bool, freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if free := uploadsAtOnce - r.all; free == 0 || caller != "" && r.of[caller] >= free {
		return false, r.freed
	}
	r.all++
	r.of[caller]++
	return true, nil
}

func (r *room) leave(caller string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	r.of[caller]--
	if r.of[caller] == 0 {
		delete(r.of, caller)
	}
	close(r.freed)
	r.freed = make(chan struct{})
}
