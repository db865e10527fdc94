package importer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// calls notes the calls of a Recipe Service, and their callers.
type calls struct {
	mu   sync.Mutex
	seen []string
}

func (c *calls) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, text)
}

// TestTheRecipeServiceIsCalledAsDocumented compares all that is asked for an import, from its beginning to its end, with the
// document, byte for byte: one that becomes a recipe, and one whose recipe is refused.
func TestTheRecipeServiceIsCalledAsDocumented(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-t0ken"
	site := newVideos(t)
	for name, c := range map[string]struct {
		status int
		answer string
		state  contracts.ImportState
		end    string
	}{
		"ready": {
			http.StatusCreated, `{"recipe_id":"550e8400-e29b-41d4-a716-446655440002"}`, contracts.ImportReady,
			`{"status":"READY","recipe_id":"550e8400-e29b-41d4-a716-446655440002"}`,
		},
		"refused": {
			http.StatusBadRequest, `{"message":"owner_id is unknown"}`, contracts.ImportFailed,
			`{"status":"FAILED","code":"store_failed","error":"Failed to create recipe: create recipe: the store answered 400: owner_id is unknown"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &calls{}
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				check.Is(t, err, nil)
				if r.Header.Get("X-Service-Token") != secret || r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s %s: headers %v", r.Method, r.URL, r.Header)
				}
				asked.note(r.Method + " " + r.RequestURI + " " + string(body))
				switch {
				case r.Method == http.MethodGet:
					http.Error(w, "{}", http.StatusNotFound)
				case r.URL.Path == "/internal/recipes/from-import-job":
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.answer))
				}
			}))
			t.Cleanup(service.Close)
			i, _ := startHere(t, func(cfg *importer.Config) {
				cfg.RecipeServiceURL, cfg.RecipeServiceToken = service.URL, secret
				cfg.Extractor = importer.Extractor{Extractor: echo{}, Name: "echo"}
			})
			address := site.URL + "/pancakes.vtt"
			job := contracts.ImportJob{JobID: "j1", OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: address}
			check.Same(t, "it ended as", imported(t, i, job).Status, c.state)
			want := []string{
				`GET /internal/import-jobs/j1 `,
				`POST /internal/import-jobs/j1/status {"status":"RUNNING"}`,
				`POST /internal/import-jobs/j1/transcript {"segments":[{"start":1,"dur":4,"text":"Today we make pancakes."},` +
					`{"start":5,"dur":6,"text":"Mix 2 cups of flour with 1 teaspoon of salt."},{"start":11,"dur":7,"text":"Add 3 eggs and whisk until smooth."},` +
					`{"start":18,"dur":7,"text":"Pour the batter into a hot pan and fry for 2 minutes."}]}`,
				`POST /internal/recipes/from-import-job {"job_id":"j1","owner_id":"ada","source_ref":"` + address + `","title":"pancakes","description":"",` +
					`"ingredients":[{"item":"flour"}],"steps":[{"index":1,"text":": Today we make pancakes."}],"raw_transcript":` +
					`"[1.00s] Today we make pancakes.\n[5.00s] Mix 2 cups of flour with 1 teaspoon of salt.\n[11.00s] Add 3 eggs and whisk until smooth.\n` +
					`[18.00s] Pour the batter into a hot pan and fry for 2 minutes.\n"}`,
				`POST /internal/import-jobs/j1/status ` + c.end,
			}
			check.Until(t, time.Minute, "the end is told", func() bool {
				asked.mu.Lock()
				defer asked.mu.Unlock()
				return len(asked.seen) >= len(want)
			})
			asked.mu.Lock()
			defer asked.mu.Unlock()
			check.Equal(t, want, asked.seen)
		})
	}
}

// echo is an extractor whose recipe shows its input: the language, the first chapter and the first sentence.
type echo struct{}

// Extract implements extract.Extractor.
func (echo) Extract(_ context.Context, in extract.Input) (recipe.Recipe, error) {
	if len(in.Segments) == 0 {
		return recipe.Recipe{}, errors.New("nothing is said")
	}
	words := in.Language + ": " + in.Segments[0].Text
	if len(in.Chapters) > 0 {
		words += " in " + in.Chapters[0].Title
	}
	return recipe.Recipe{
		Title: in.Title, Language: in.Language, Source: in.Source, Ingredients: []recipe.Ingredient{{Item: "flour"}},
		Steps: []recipe.Step{{Index: 1, Text: words}},
	}, nil
}

// said makes a caption file of one sentence, which is long enough.
func said(sentence string) string {
	return "WEBVTT\n\n00:01.000 --> 00:09.000\n" + sentence + "\n\n00:10.000 --> 00:19.000\nStir it in until all of it is smooth and soft.\n"
}

const (
	english = "Sift two cups of flour into a large bowl."
	german  = "Zwei Tassen Mehl in eine Schüssel sieben."
	hebrew  = "מנפים שתי כוסות קמח לתוך קערה גדולה."
)

type videoCase struct {
	name  string
	video sourcetest.Video

	words   string // of the recipe, when there is one
	code    contracts.ImportCode
	message string
	retry   bool // it may go better another time, so that the job is a dead letter
	fetches int
}

// videoCases are the cases of videos in the document, each with its outcome.
func videoCases() []videoCase {
	with := func(tracks ...sourcetest.Track) sourcetest.Video {
		return sourcetest.Video{Title: "Cake", Tracks: tracks}
	}
	manual := sourcetest.Track{Language: "en", Body: said(english)}
	broken := func(status int) sourcetest.Video { return with(sourcetest.Track{Language: "en", Status: status}) }
	const (
		gone    = "Video unavailable or private"
		none    = "No transcript available - this video may not have captions enabled"
		blocked = "The video has captions, but its site does not hand them out"
		limited = "The site limits how often we may ask"
		slow    = "yt-dlp failed: the site does not answer in time"
	)
	chapters := with(manual)
	chapters.Description = "0:00 Batter\n1:00 Oven\n2:30 Icing\n"
	return []videoCase{
		{name: "manual", video: with(sourcetest.Track{Language: "en", Automatic: true, Status: 500}, manual), words: "en: " + english, fetches: 1},
		{name: "automatic", video: with(sourcetest.Track{Language: "de", Automatic: true, Body: said(german)}), words: "de: " + german, fetches: 1},
		{name: "another language", video: with(sourcetest.Track{Language: "iw", Body: said(hebrew)}), words: "he: " + hebrew, fetches: 1},
		{name: "chapters", video: chapters, words: "en: " + english + " in Batter", fetches: 1},
		{name: "private", video: sourcetest.Video{Reason: sourcetest.Private}, code: contracts.CodePrivate, message: gone},
		{name: "gone", video: sourcetest.Video{Reason: sourcetest.Gone}, code: contracts.CodeUnavailable, message: gone},
		{name: "bot check", video: sourcetest.Video{Reason: sourcetest.BotCheck}, code: contracts.CodeBotCheck, message: "The site wants us to prove that we are not a bot", retry: true},
		{name: "no captions", video: with(), code: contracts.CodeNoCaptions, message: none},
		{name: "captions not there", video: broken(http.StatusNotFound), code: contracts.CodeCaptionsBlocked, message: blocked, fetches: 1},
		{name: "captions limited", video: broken(http.StatusTooManyRequests), code: contracts.CodeRateLimited, message: limited, retry: true, fetches: 1},
		{name: "stalled", video: with(sourcetest.Track{Language: "en", Stall: true}), code: contracts.CodeTimeout, message: slow, retry: true, fetches: 1},
		{name: "no captions in the file", video: with(sourcetest.Track{Language: "en", Body: "<!DOCTYPE html><html>"}), code: contracts.CodeBadCaptions, message: "The captions cannot be read: found an HTML page", fetches: 1},
		{
			name: "too short", video: with(sourcetest.Track{Language: "en", Body: "WEBVTT\n\n00:01.000 --> 00:02.000\nHi.\n"}), code: contracts.CodeTooShort,
			message: "Transcript is too short (3 characters). Recipe videos typically have longer transcripts.", fetches: 1,
		},
	}
}

func videoID(n int) string { return fmt.Sprintf("case_%06d", n) }

// tube fetches videos, the one that stalls with less patience.
type tube struct {
	*source.Sources

	hasty *source.Sources
	stall string
}

// Fetch implements source.Fetcher.
func (u tube) Fetch(ctx context.Context, req source.Request, progress func(float64)) (*source.Material, error) {
	if strings.HasSuffix(req.URL, u.stall) {
		return u.hasty.Fetch(ctx, req, progress)
	}
	return u.Sources.Fetch(ctx, req, progress)
}

// TestVideosEndAsDocumented imports videos of all kinds at the same time, with the real yt-dlp. Each ends in the state, with
// the code and in the words that are documented, after as many requests for captions as it takes.
func TestVideosEndAsDocumented(t *testing.T) {
	t.Parallel()
	installed.YtDlp.Find(t)
	cases := videoCases()
	videos, stall := map[string]sourcetest.Video{}, ""
	for n, c := range cases {
		videos[videoID(n)] = c.video
		if c.name == "stalled" {
			stall = videoID(n)
		}
	}
	y := sourcetest.StartYouTube(t, videos)
	temp := t.TempDir()
	sources := func(socket time.Duration) *source.Sources {
		s, err := source.New(source.Config{TempDir: temp, YouTube: &source.YouTube{CAFile: y.CAFile, Proxy: y.Proxy, SocketTimeout: socket}})
		check.OK(t, err)
		return s
	}
	srv := natstest.Server(t)
	i, _ := start(t, srv, func(c *importer.Config) {
		c.Extractor, c.OutagePatience = importer.Extractor{Extractor: echo{}, Name: "echo"}, time.Nanosecond
		c.Fetcher = tube{Sources: sources(time.Minute), hasty: sources(500 * time.Millisecond), stall: stall}
	})
	letters := uint64(0)
	for n, c := range cases {
		job := contracts.ImportJob{JobID: c.name, OwnerID: "ada", SourceType: contracts.SourceYouTube, URL: "https://youtu.be/" + videoID(n)}
		_, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: job})
		check.Require(t, err == nil, "%v", err)
		if c.retry {
			letters++
		}
	}
	for n, c := range cases {
		c.check(t, i, followed(t, i, c.name))
		check.Same(t, c.name+": requests for captions", y.Fetches(videoID(n)), c.fetches)
	}
	_, js := natstest.Connect(t, srv)
	check.Until(t, time.Minute, "a job that may succeed another time is a dead letter", func() bool {
		dead, err := js.Stream(t.Context(), contracts.StreamDead)
		return err == nil && dead.CachedInfo().State.Msgs == letters
	})
	if left, err := os.ReadDir(temp); err != nil || len(left)+len(sourcetest.AtWork(temp)) > 0 {
		t.Errorf("temporary files %v, %v, processes %v", left, err, sourcetest.AtWork(temp))
	}
}

func (c videoCase) check(t *testing.T, i *importer.Importer, job importer.Job) {
	t.Helper()
	if c.words == "" {
		if job.Status != contracts.ImportFailed || job.Code != c.code || !strings.HasPrefix(job.Error, c.message) || job.Retryable != c.retry || job.Step != "transcript" {
			t.Errorf("%s: it ended as %+v\nwant %s, %q", c.name, job, c.code, c.message)
		}
		return
	}
	if job.Status != contracts.ImportReady {
		t.Errorf("%s: it ended as %+v", c.name, job)
		return
	}
	stored, err := i.Recipes().Get(t.Context(), job.RecipeID)
	check.That(t, err == nil && len(stored.Recipe.Steps) != 0 && stored.Recipe.Steps[0].Text == c.words,
		"%s: recipe %+v, %v: want %q", c.name, stored.Recipe, err, c.words)
}
