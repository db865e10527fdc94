package rules_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// video is a sample as it stands in testdata, times in seconds.
type video struct {
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Language    string            `json:"language"`
	Duration    float64           `json:"duration"`
	Segments    []caption.Segment `json:"segments"`
	Chapters    []struct {
		Start float64 `json:"start"`
		End   float64 `json:"end"`
		Title string  `json:"title"`
	} `json:"chapters"`
}

func sample(t testing.TB, name string) extract.Input {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".input.json"))
	check.OK(t, err)
	var v video
	check.OK(t, json.Unmarshal(data, &v))
	in := extract.Input{
		Description: v.Description, Duration: seconds(v.Duration), Language: v.Language, Segments: v.Segments, Title: v.Title,
		Source: recipe.Source{Type: "youtube", Ref: "https://video.example/" + name},
	}
	for _, c := range v.Chapters {
		in.Chapters = append(in.Chapters, extract.Chapter{Start: seconds(c.Start), End: seconds(c.End), Title: c.Title})
	}
	return in
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// TestSamples holds whole recipes against files; run it with -update after a change that is meant, and read the difference.
func TestSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.input.json")
	check.Require(t, err == nil && len(files) != 0, "%d samples: %v", len(files), err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".input.json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := rules.New().Extract(t.Context(), sample(t, name))
			check.OK(t, err)
			got, err := json.MarshalIndent(r, "", " ")
			check.OK(t, err)
			golden := filepath.Join("testdata", name+".recipe.json")
			if *update {
				check.OK(t, os.WriteFile(golden, append(got, '\n'), 0o600))
			}
			want, err := os.ReadFile(golden)
			check.OK(t, err)
			check.Equal(t, strings.TrimSpace(string(want)), string(got))
		})
	}
}
