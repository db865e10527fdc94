package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// row is a sentence with what people marked in it.
type row struct {
	start, end   float64
	text         string
	step         bool
	objects      string
	times        string
	temperatures string
}

// video is a transcript.
type video struct {
	title, address string
	train          bool
	rows           []row
}

// lastRow is how long the last sentence of a video lasts, in seconds.
const lastRow = 5

func load(dir string) ([]video, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil {
		return nil, fmt.Errorf("look for transcripts: %w", err)
	}
	var out []video
	for _, path := range files {
		videos, err := loadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, videos...)
	}
	return out, nil
}

func loadFile(path string) ([]video, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("read transcripts: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	in := csv.NewReader(f)
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	rows, err := in.ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("read transcripts of %s: %d rows: %w", path, len(rows), err)
	}
	column := columns(rows[0])
	var out []video
	dishes := map[string]int{}
	for _, fields := range rows[1:] {
		get := func(name string) string {
			if i, ok := column[name]; ok && i < len(fields) {
				return strings.TrimSpace(fields[i])
			}
			return ""
		}
		if len(out) == 0 || out[len(out)-1].address != get("videourl") {
			dish := get("title")
			if _, ok := dishes[dish]; !ok {
				dishes[dish] = len(dishes)
			}
			out = append(out, video{title: dish, address: get("videourl"), train: dishes[dish]%2 == 0})
		}
		v := &out[len(out)-1]
		r := row{
			start: seconds(get("timestamp")), text: get("sentence"), step: get("isusefulsentence") == "1",
			objects: get("object"), times: get("time"), temperatures: get("temperature"),
		}
		r.end = r.start + lastRow
		if n := len(v.rows); n > 0 {
			r.start = max(r.start, v.rows[n-1].start)
			v.rows[n-1].end = r.start
			r.end = r.start + lastRow
		}
		v.rows = append(v.rows, r)
	}
	return out, nil
}

// columns finds columns by the letters with which their names begin: one is called "Object(directly related with Verb)".
func columns(header []string) map[string]int {
	out := map[string]int{}
	for i, name := range header {
		name, _, _ = strings.Cut(strings.ToLower(name), "(")
		out[strings.TrimSpace(name)] = i
	}
	return out
}

// seconds reads "01:30.5" and "0:01:30".
func seconds(text string) float64 {
	total := 0.0
	for part := range strings.SplitSeq(text, ":") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return total
		}
		total = total*60 + x
	}
	return total
}
