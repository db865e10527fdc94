package provider

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// FuzzDecode checks that every venue of an answer that is taken can be stored as a result.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"venues":[]}`, `{"venues":[null,{}]}`, `{"venues":null}`, `null`, ``, `<html>`,
		`{"venues":[{"id":"1","name":"א","url":"https://a.example/..","location":{"lat":1e308,"lng":-1e308}}]}`,
		`{"VENUES":[{"name":"A","url":"http://[::1]:1/%zz","aliases":["B"]}],"venues":[{"name":"A","url":"http://a?b#c"}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		venues, err := decode(body)
		check.That(t, err == nil || venues == nil, "%d venues beside %v", len(venues), err)
		for _, v := range venues {
			result := contracts.Venue{ID: v.ID, Name: v.Name, Address: v.Address, City: v.City, URL: v.URL}
			_, err := contracts.Encode(contracts.EnrichResult{
				Status: contracts.StatusFound, Outcome: contracts.OutcomeFound, URL: &v.URL, Venue: &result, UpdatedAt: time.Now(),
			})
			check.OK(t, err)
		}
	})
}
