package rig

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Page is a part of a document in Markdown: what stands between two lines with its name, which a benchmark writes anew.
type Page struct {
	name, file string
	text       strings.Builder
}

func (p *Page) lines() (begin, end string) {
	return "<!-- begin of what bench/" + p.name + " writes -->\n", "<!-- end of what bench/" + p.name + " writes -->\n"
}

// OpenPage returns the place of a benchmark in a document, nil for no file.
func OpenPage(name, file string) (*Page, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	p := &Page{name: name, file: file}
	_, err := p.put("")
	return p, err
}

// Write implements io.Writer, and writes nothing where there is no page.
func (p *Page) Write(text []byte) (int, error) {
	if p != nil {
		p.text.Write(text)
	}
	return len(text), nil
}

// put returns the document with text in the place of the page.
func (p *Page) put(text string) (string, error) {
	data, err := os.ReadFile(p.file)
	if err != nil {
		return "", fmt.Errorf("--write: %w", err)
	}
	begin, end := p.lines()
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("--write %s: it has no line %q with %q behind it", p.file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + text + end + after, nil
}

// Save puts what was written in its place, below the command with its arguments.
func (p *Page) Save(args []string) error {
	if p == nil {
		return nil
	}
	command := strings.Join(append([]string{"go -C bench run ./" + p.name}, measuring(args)...), " ")
	text, err := p.put("\n```sh\n" + command + "\n```\n\n" + strings.TrimSpace(p.text.String()) + "\n\n")
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	return nil
}

// SaveText is Save of a text that is no Markdown.
func (p *Page) SaveText(args []string) error {
	if p == nil {
		return nil
	}
	text := p.text.String()
	p.text.Reset()
	p.text.WriteString("```text\n" + strings.TrimSpace(text) + "\n```")
	return p.Save(args)
}

// measuring leaves out of arguments the flags that do not change what is measured.
func measuring(args []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		switch name, value, _ := strings.Cut(strings.TrimLeft(args[i], "-"), "="); {
		case name == "json":
		case name == "write" || name == "data": // and where the data is on this machine
			if value == "" {
				i++
			}
		case strings.ContainsAny(args[i], "^$|()*"):
			kept = append(kept, "'"+args[i]+"'")
		default:
			kept = append(kept, args[i])
		}
	}
	return kept
}

// Machine is where figures come from, and what was measured.
type Machine struct {
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Date     string            `json:"date"`
	Go       string            `json:"go"`
	Load     string            `json:"load,omitempty"` // before: averages over 1, 5 and 15 minutes
	OS       string            `json:"os"`
	Versions map[string]string `json:"versions"` // of the libraries and programs that are compared
}

// String is a sentence.
func (m Machine) String() string {
	s := fmt.Sprintf("Measured on %s with %d × %s (%s), %s", m.Date, m.CPUs, m.CPU, m.OS, m.Go)
	if m.Load != "" {
		s += ", load before: " + m.Load
	}
	return s + "."
}

// compared are the libraries whose versions are told, by the beginnings of their paths.
var compared = []string{
	"github.com/ThreeDotsLabs/watermill-nats", "github.com/bsm/redislock", "github.com/go-redsync/redsync", "github.com/hibiken/asynq",
	"github.com/jackc/pgx", "github.com/nats-io/nats-server", "github.com/nats-io/nats.go", "github.com/redis/rueidis",
	"github.com/riverqueue/river", "go.etcd.io/etcd/client",
}

// ThisMachine is the machine as it is now, and the libraries of this program.
func ThisMachine() Machine {
	m := Machine{
		CPU: processor(), CPUs: runtime.GOMAXPROCS(0), Date: time.Now().Format(time.DateOnly), Go: runtime.Version(), Load: loadAverage(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Versions: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, d := range info.Deps {
		if slices.ContainsFunc(compared, func(of string) bool { return d.Path == of || strings.HasPrefix(d.Path, of+"/v") }) {
			m.Versions[d.Path] = d.Version
		}
	}
	return m
}
