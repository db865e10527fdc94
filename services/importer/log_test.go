package importer_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/store"
)

// mute is a store that takes everything and does not say what it knows.
type mute struct{}

func (mute) Status(context.Context, string) (*contracts.ImportStatus, error) {
	return nil, errors.New("no answer")
}
func (mute) SetStatus(context.Context, string, contracts.ImportStatus) error { return nil }
func (mute) SaveTranscript(context.Context, string, []caption.Segment) error { return nil }
func (mute) Create(_ context.Context, draft store.Draft) (id string, err error) {
	return "r-" + draft.JobID, nil
}

// An event of the level debug is in the log when the environment asks for it.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]bool{"": false, "debug": true} {
		t.Run("level "+level, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer // read when the importer has stopped
			i, _ := start(t, natstest.Server(t), func(cfg *importer.Config) {
				check.OK(t, service.Read("importer", map[string]string{"IMPORTER_LOG_LEVEL": level}, &log, cfg))
				cfg.Store = mute{}
			})
			job, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: contracts.ImportJob{
				OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: newVideos(t).URL + "/pancakes.vtt",
			}})
			if err == nil {
				err = i.Follow(t.Context(), job.JobID, func(j importer.Job) error { job = j; return nil })
			}
			if err := errors.Join(err, i.Stop()); err != nil || job.Status != contracts.ImportReady {
				t.Fatalf("%+v, %v", job, err)
			}
			if got := strings.Contains(log.String(), `"level":"DEBUG","msg":"importer: the store does not say where a job stands"`); got != want {
				t.Errorf("a debug event is logged: %t, want %t:\n%s", got, want, &log)
			}
		})
	}
}
