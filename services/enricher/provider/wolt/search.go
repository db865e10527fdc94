package wolt

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// searchBody is the body of a call to the search.
type searchBody struct {
	Lat    float64 `json:"lat"`
	Lon    float64 `json:"lon"`
	Q      string  `json:"q"`
	Target string  `json:"target"`
}

// ask makes one call to the search.
func (c *Client) ask(ctx context.Context, q query, at match.Point) (found, error) {
	body, err := json.Marshal(searchBody{Lat: at.Lat, Lon: at.Lng, Q: q.text, Target: "venues"})
	if err != nil { // A position that is no number.
		return found{}, c.fail(provider.KindUnsupported, "the place's location cannot be sent", err)
	}

	var result found

	r := request{body: body, language: q.language, method: http.MethodPost, path: "/v1/pages/search"}
	err = c.call(ctx, r, func(answer []byte) error {
		decoded, err := decodeSearch(answer)

		switch {
		case errors.Is(err, errNoContent):
			return c.fail(provider.KindBlocked, "check the rate, whether Wolt expects a newer client, and whether the place is served at all", err)
		case err != nil:
			return c.fail(provider.KindMalformed, "the answer to the search cannot be read", err)
		}

		result = decoded
		return nil
	})
	return result, err
}
