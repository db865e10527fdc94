package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match"
)

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
}

// placeOf makes a place of a record with any known column names.
func placeOf(record map[string]string) match.Place {
	f := map[string]string{}
	for k, v := range record {
		if to, ok := columns[strings.ToLower(strings.TrimSpace(k))]; ok && v != "" {
			f[to] = v
		}
	}
	place := match.Place{Name: f["name"], Address: f["address"], City: f["city"], Phone: f["phone"]}
	lat, errLat := strconv.ParseFloat(f["lat"], 64)
	lng, errLng := strconv.ParseFloat(f["lng"], 64)
	if errLat == nil && errLng == nil {
		place.Location = &match.Point{Lat: lat, Lng: lng}
	}
	return place
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
		out = append(out, labelled{left: placeOf(texts(p.Left)), right: placeOf(texts(p.Right)), same: p.Label == "1"})
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
