package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// owners is the number of people that import each source of the sample at the same time.
const owners = 3

// sources are the files of the sample's site, with the expected end of an import: the code of a failure, or "" for a
// recipe.
var sources = []struct {
	path, kind string
	code       contracts.ImportCode
}{
	{"/pancakes.vtt", source.TypeCaptions, ""},
	{"/soup.vtt", source.TypeCaptions, ""},
	{"/salad.srt", source.TypeCaptions, ""},
	{"/bread.html", source.TypeWeb, ""},
	{"/short.vtt", source.TypeCaptions, failure.TooShort},
	{"/page-of-errors.vtt", source.TypeCaptions, failure.BadCaptions},
	{"/gone.vtt", source.TypeCaptions, failure.Unavailable},
}

// site serves the sample's files and counts the requests for each.
type site struct {
	files http.Handler

	mu    sync.Mutex
	asked map[string]int
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	s.mu.Unlock()
	s.files.ServeHTTP(w, r)
}

// count returns the number of fetched sources. Other requests of a client, such as robots.txt, do not count.
func (s *site) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range sources {
		n += s.asked[src.path]
	}
	return n
}

// importAll has several people import each source at the same moment, each job submitted to both instances, and checks
// the outcome.
func (d *demo) importAll(ctx context.Context) error {
	witness := &site{files: http.FileServerFS(pipeline.Videos()), asked: map[string]int{}}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve the sample's videos: %w", err)
	}
	server := &http.Server{Handler: witness, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // imports fail when it does
	started := time.Now()
	err = errors.Join(d.handIn(ctx, "http://"+listener.Addr().String()), server.Close())
	serving.Wait()
	if err != nil {
		return err
	}
	r := &d.report.Importer
	r.Sources, r.TranscriptFetches = len(sources), witness.count()
	if err := d.countRecipes(ctx); err != nil {
		return err
	}
	d.sayf("imported   %d sources for %d people at the same moment, each submitted twice: %d ready, %d failed as intended,",
		r.Sources, owners, r.Ready, r.Failed)
	d.sayf("           %d recipes and %d fetches, in %s\n", r.Recipes, r.TranscriptFetches, round(time.Since(started)))
	return nil
}

// handIn submits every job to both instances, and follows it at the second.
func (d *demo) handIn(ctx context.Context, base string) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	r := &d.report.Importer
	r.Codes = map[string]int{}
	for _, src := range sources {
		for owner := range owners {
			wg.Go(func() {
				last, err := d.importOne(ctx, contracts.ImportJob{
					JobID: fmt.Sprintf("demo-%s-%d", src.path[1:], owner), OwnerID: ownerID(owner), SourceType: src.kind, URL: base + src.path,
				})
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				r.Submitted++
				if last.Status == contracts.ImportReady {
					r.Ready++
				}
				if last.Status == contracts.ImportFailed {
					r.Failed++
					r.Codes[string(last.Code)]++
				}
				if last.Code == src.code && last.Status.Final() {
					r.AsExpected++
				}
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func ownerID(n int) string { return fmt.Sprintf("demo-owner-%d", n+1) }

func (d *demo) importOne(ctx context.Context, job contracts.ImportJob) (last importer.Job, err error) {
	for _, i := range d.pipeline.Importers {
		if _, _, err := i.Submit(ctx, importer.Submission{ImportJob: job}); err != nil {
			return last, fmt.Errorf("import %s: %w", job.URL, err)
		}
	}
	err = d.pipeline.Importers[1].Follow(ctx, job.JobID, func(j importer.Job) error {
		last = j
		return nil
	})
	if err != nil {
		return last, fmt.Errorf("follow the import of %s: %w", job.URL, err)
	}
	return last, nil
}

// countRecipes counts the recipes in the store.
func (d *demo) countRecipes(ctx context.Context) error {
	r := &d.report.Importer
	for owner := range owners {
		list, _, err := d.pipeline.Importers[0].Recipes().List(ctx, store.Query{OwnerID: ownerID(owner)})
		if err != nil {
			return err
		}
		jobs := map[string]bool{}
		for _, line := range list {
			r.Recipes++
			if jobs[line.JobID] {
				r.DuplicateRecipes++
			}
			jobs[line.JobID] = true
		}
	}
	return nil
}
