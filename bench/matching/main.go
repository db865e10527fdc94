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
