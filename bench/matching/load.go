package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// row is a place and the key of its record.
type row struct {
	id    string
	place match.Place
}

// labelled is a pair of places of which it is known whether they are one.
type labelled struct {
	left, right match.Place
	same        bool
}

// columns are the names under which sources keep a field.
var columns = map[string]string{ //nolint:gochecknoglobals // a constant table
	"name": "name", "title": "name",
	"addr": "address", "address": "address", "street": "address", "full_address": "address",
	"city": "city", "locality": "city", "town": "city",
	"phone": "phone", "tel": "phone", "telephone": "phone", "phone_number": "phone",
	"lat": "lat", "latitude": "lat", "lng": "lng", "lon": "lng", "long": "lng", "longitude": "lng",
	"id": "id",
}

// placeOf makes a place of a record with any known column names.
func placeOf(record map[string]string) row {
	var r row
	f := map[string]string{}
	for k, v := range record {
		if to, ok := columns[strings.ToLower(strings.TrimSpace(k))]; ok && v != "" {
			f[to] = v
		}
	}
	r.id = f["id"]
	r.place = match.Place{Name: f["name"], Address: f["address"], City: f["city"], Phone: f["phone"]}
	lat, errLat := strconv.ParseFloat(f["lat"], 64)
	lng, errLng := strconv.ParseFloat(f["lng"], 64)
	if errLat == nil && errLng == nil {
		r.place.Location = &match.Point{Lat: lat, Lng: lng}
	}
	return r
}

func readPairs(path string) ([]labelled, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("read pairs: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	var out []labelled
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var p struct {
			Label json.Number    `json:"label"`
			Left  map[string]any `json:"left"`
			Right map[string]any `json:"right"`
		}
		decoder := json.NewDecoder(bytes.NewReader(s.Bytes()))
		decoder.UseNumber() // a telephone number is no float
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("read pair %d of %s: %w", len(out)+1, path, err)
		}
		out = append(out, labelled{left: placeOf(texts(p.Left)).place, right: placeOf(texts(p.Right)).place, same: p.Label == "1"})
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read pairs: %w", err)
	}
	return out, nil
}

// texts turns the values of a JSON object into text.
func texts(record map[string]any) map[string]string {
	out := make(map[string]string, len(record))
	for k, v := range record {
		if v != nil {
			out[k] = fmt.Sprint(v)
		}
	}
	return out
}

func readTable(path string) ([]row, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	in := csv.NewReader(f)
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("read the header of %s: %w", path, err)
	}
	var out []row
	for {
		fields, err := in.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read row %d of %s: %w", len(out)+1, path, err)
		}
		record := map[string]string{}
		for i, v := range fields[:min(len(fields), len(header))] {
			record[header[i]] = v
		}
		out = append(out, placeOf(record))
	}
}
