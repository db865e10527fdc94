package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
)

// video is a transcript with the sentences in which people saw a step.
type video struct {
	dish      int // videos of one dish are never on both sides of a cross-validation
	sentences []talk.Sentence
	features  []talk.Features
	marked    []bool
}

// readVideos reads the videos of the dishes with even numbers, counted from 0 in the order of the file.
func readVideos(path string) ([]video, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("read sentences: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read sentences of %s: %w", path, err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	dishes := map[string]int{}
	var out []video
	for from := 1; from < len(rows); {
		to := from
		for to < len(rows) && rows[to][column["VideoUrl"]] == rows[from][column["VideoUrl"]] {
			to++
		}
		title := rows[from][column["Title"]]
		if _, ok := dishes[title]; !ok {
			dishes[title] = len(dishes)
		}
		if dishes[title]%2 == 0 {
			out = append(out, newVideo(dishes[title]/2, rows[from:to], column))
		}
		from = to
	}
	return out, nil
}

func newVideo(dish int, rows [][]string, column map[string]int) video {
	v := video{dish: dish}
	segments := make([]talk.Segment, len(rows))
	for i, row := range rows {
		segments[i] = talk.Segment{Start: seconds(row[column["TimeStamp"]]), Text: row[column["Sentence"]]}
		segments[i].End = segments[i].Start + 5
		if i > 0 {
			segments[i-1].End = segments[i].Start
		}
	}
	v.sentences = talk.Sentences(segments)
	v.features, _ = talk.Observe(v.sentences, func() error { return nil }) //nolint:errcheck // the one error is that of the function
	v.marked = make([]bool, len(v.sentences))
	for i, s := range v.sentences {
		for j, row := range rows {
			if segments[j].Start < s.End && s.Start < segments[j].End && row[column["IsUsefulSentence"]] == "1" {
				v.marked[i] = true
			}
		}
	}
	return v
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
