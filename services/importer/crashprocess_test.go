package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// process is a worker process.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{}
	err  error
	said strings.Builder
	stop func() error
}

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (c *crash) spawn(d duty) *process {
	c.Helper()
	d.Recipes, d.TempDir, d.URL = c.recipes.URL, c.dir, c.url
	if c.youTube != nil {
		d.CAFile, d.Proxy = c.youTube.CAFile, c.youTube.Proxy
	}
	text, err := json.Marshal(d)
	if err != nil {
		c.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	p := &process{gone: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(c.Context()), program)
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), &p.said
	in, err := p.cmd.StdinPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	go func() {
		defer close(p.gone)
		p.err = p.cmd.Wait()
	}()
	p.stop = func() error {
		if err := in.Close(); err != nil {
			return err
		}
		<-p.gone
		if p.err != nil {
			return fmt.Errorf("%w: %s", p.err, &p.said)
		}
		return nil
	}
	c.Cleanup(func() {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			c.Error(err)
		}
		<-p.gone
		if c.Failed() {
			c.Logf("worker process %d said:\n%s", p.cmd.Process.Pid, &p.said)
		}
	})
	return p
}

// captionSite is a site with caption files.
type captionSite struct {
	*httptest.Server

	mu     sync.Mutex
	counts map[string]int
}

func newCaptionSite(t *testing.T) *captionSite {
	t.Helper()
	f := &captionSite{counts: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		f.mu.Lock()
		f.counts[name]++
		f.mu.Unlock()
		_, _ = w.Write([]byte(pancakes(name)))
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *captionSite) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// pancakes is a caption file that holds a recipe, and a word by which it differs from others.
func pancakes(word string) string {
	return `WEBVTT

00:01.000 --> 00:05.000
Today we make pancakes ` + word + `.

00:05.000 --> 00:11.000
Mix 2 cups of flour with 1 teaspoon of salt.

00:11.000 --> 00:18.000
Add 3 eggs and whisk until smooth.

00:18.000 --> 00:25.000
Pour the batter into a hot pan and fry for 2 minutes.
`
}
