package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
)

const (
	// atOnce is how many files arrive at a time, and boundary the line between the parts of their forms.
	atOnce   = 8
	boundary = "b"

	field = "--" + boundary + "\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n"
	file  = "--" + boundary + "\r\nContent-Disposition: form-data; name=\"file\"; filename=%q\r\n\r\n%s\r\n"
	end   = "--" + boundary + "--\r\n"
)

// worstForms returns functions that make form n of a kind, without its end. Each form costs the importer as much as one of its kind can.
// The forms with a file have other bytes for each n, as the importer takes the same file only once.
func worstForms() map[string]func(n int) []byte {
	owner := fmt.Sprintf(field, "owner_id", "ada")
	filled := func(part string) func(int) []byte {
		return func(int) []byte { return []byte(owner + strings.Repeat(part, (8<<20)/len(part))) }
	}
	forms := map[string]func(int) []byte{
		"fields":  filled(fmt.Sprintf(field, "x", "")),
		"names":   filled(fmt.Sprintf(field, strings.Repeat("x", 64), "")),
		"files":   filled(fmt.Sprintf(file, "a.txt", "x")),
		"headers": filled("--" + boundary + "\r\n" + strings.Repeat("X: y\r\n", 9000) + "\r\n\r\n"),
		"lines":   filled("--" + boundary + "\r\nX: " + strings.Repeat("y", 1<<20) + "\r\n\r\n\r\n"),
	}
	for name, made := range worst {
		if made != nil && tried(name) {
			content := made()
			content = content[:min(len(content), 8<<20-1)]
			forms[name] = func(n int) []byte { return fmt.Appendf([]byte(owner), file, name, fmt.Appendf(content, "%d", n)) }
		}
	}
	return forms
}

// handIn hands in the worst forms, eight at a time, and returns the ids of the jobs that they became. All eight have arrived but for
// their ends before one of them ends.
func handIn(t *testing.T, process *crash.Process, copies int) map[string]bool {
	t.Helper()
	address := process.Await(`http=(http://\S+)`)[1] + "/v1/imports"
	forms := worstForms()
	var names []string
	for name := range forms {
		names = append(names, slices.Repeat([]string{name}, copies)...)
	}
	slices.Sort(names)
	var mu sync.Mutex
	ids := map[string]bool{}
	for batch := range slices.Chunk(names, atOnce) {
		var arrived, done sync.WaitGroup
		arrived.Add(len(batch))
		for i, name := range batch {
			done.Go(func() {
				body := &held{Reader: bytes.NewReader(forms[name](i)), arrived: &arrived}
				defer body.once.Do(arrived.Done) // when it was refused before all of it has arrived
				status, answer := post(t, address, body)
				var job imports.Job
				if status == http.StatusAccepted && json.Unmarshal(answer, &job) == nil {
					mu.Lock()
					ids[job.JobID] = true
					mu.Unlock()
				}
				t.Logf("%s: %d %.100s: %d MiB", name, status, answer, peak(t, process.PID())>>20)
				check.Same(t, fmt.Sprintf("%s: %d: %.200s", name, status, answer), strings.Contains(name, "."), status == http.StatusAccepted)
			})
		}
		done.Wait()
	}
	return ids
}

// post hands in a form. The status is 0 when the connection ended before the form, because that was refused.
func post(t *testing.T, address string, body io.Reader) (status int, answer []byte) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, address, io.MultiReader(body, strings.NewReader(end))))(t)
	r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	check.OK(t, err)
	return resp.StatusCode, answer
}

// held is the beginning of a form. Its end waits for those of the others.
type held struct {
	io.Reader

	arrived *sync.WaitGroup
	once    sync.Once
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if err == io.EOF {
		h.once.Do(h.arrived.Done)
		h.arrived.Wait()
	}
	return n, err
}
