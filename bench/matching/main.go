// Command matching measures the place matcher on labelled pairs.
//
//	go -C bench run ./matching [--data DIR] [--errors] [--json]
//
// DIR holds pairs-*.jsonl, one {"left":{...},"right":{...},"label":0|1} a line. Without --data it looks beside the
// project, and says that it skips when there is nothing.
// Records have a name and may have an address, a city, a telephone number, a latitude and a longitude, under the usual
// column names. Every pairs file is read the same way: pairs-valid.jsonl is for reporting, pairs-train.jsonl is what the
// weights were fitted on.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/expediter-io/expediter/services/enricher/match"
)

const defaultData = "../../shared/data/places"

// report is the last line under --json.
type report struct {
	OK      bool        `json:"ok"`
	Skipped bool        `json:"skipped,omitempty"`
	Model   string      `json:"model,omitempty"`
	Pairs   []pairScore `json:"pairs,omitempty"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "matching:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("matching", flag.ContinueOnError)
	data := flags.String("data", defaultData, "`DIR` of the labelled places")
	list := flags.Bool("errors", false, "list every wrong, missed and undecided pair with its evidence")
	asJSON := flags.Bool("json", false, "end with one line of JSON")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	p := &printer{out: out, list: *list}
	result, err := measure(p, *data)
	if err != nil {
		return err
	}
	if *asJSON {
		line, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		p.linef("%s", line)
	}
	return p.err
}

// fieldSet is what a comparison gets to see.
type fieldSet struct {
	name           string
	address, phone bool
	location       bool
}

var fieldSets = []fieldSet{ //nolint:gochecknoglobals // a constant table
	{name: "name+address+city+phone", address: true, phone: true, location: true},
	{name: "name+address+city", address: true, location: true},
	{name: "name+city"},
}

func (f fieldSet) only(p match.Place) match.Place {
	if !f.address {
		p.Address = ""
	}
	if !f.phone {
		p.Phone = ""
	}
	if !f.location {
		p.Location = nil
	}
	return p
}

// printer writes lines and keeps the first error.
type printer struct {
	out  io.Writer
	list bool
	err  error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// mistake lists one pair under --errors.
func (p *printer) mistake(what string, a, b match.Place, e match.Evidence) {
	if p.list {
		p.linef("    %-9s %s  #  %s\n              %s", what, oneLine(a), oneLine(b), e)
	}
}

func oneLine(p match.Place) string {
	return fmt.Sprintf("%s | %s | %s | %s", p.Name, p.Address, p.City, p.Phone)
}
