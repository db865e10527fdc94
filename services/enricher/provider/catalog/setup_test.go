package catalog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read loads a file that is expected to be good.
func read(t *testing.T, file string, config catalog.Config) *catalog.Catalog {
	t.Helper()

	c, err := catalog.Read(strings.NewReader(file), config)
	check.OK(t, err)
	return c
}

// stocked loads a file of the venues.
func stocked(t testing.TB, venues []provider.Venue) *catalog.Catalog {
	t.Helper()

	var file bytes.Buffer

	rows := json.NewEncoder(&file)
	for _, v := range venues {
		row := map[string]any{
			"id": v.ID, "name": v.Name, "address": v.Address, "aliases": v.Aliases, "city": v.City, "phone": v.Phone,
		}
		if v.Location != nil {
			row["location"] = map[string]float64{"lat": v.Location.Lat, "lng": v.Location.Lng}
		}

		check.OK(t, rows.Encode(row))
	}

	c, err := catalog.Read(&file, catalog.Config{})
	check.OK(t, err)
	return c
}

// find searches by name and wants one venue or more.
func find(t *testing.T, c *catalog.Catalog, place match.Place) []provider.Venue {
	t.Helper()

	venues, err := c.Search(t.Context(), place)
	check.OK(t, err)

	check.Require(t, len(venues) != 0, "no candidates for %+v", place)
	return venues
}

// rowErrors are the bad rows of a file.
func rowErrors(t *testing.T, err error) []catalog.RowError {
	t.Helper()

	bad, ok := errors.AsType[*catalog.LoadError](err)
	check.Require(t, ok, "error = %v, want a *LoadError", err)
	return bad.Rows
}
