package console

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// lookup is the state of a place at a provider, for one description of the place.
type lookup struct {
	Attempt  int                     `json:"attempt"`
	Provider string                  `json:"provider"`
	Reason   string                  `json:"reason"`
	Result   *contracts.EnrichResult `json:"result"`
	Since    time.Time               `json:"since"`
	State    string                  `json:"state"`
	Variant  int                     `json:"variant"`
}

// Words returns the outcome in words.
func (l lookup) Words() string {
	switch {
	case l.Result == nil && l.State == "pending":
		return "is looked up"
	case l.Result == nil:
		return strings.TrimSuffix(l.State+": "+l.Reason, ": ")
	}
	words := map[contracts.Outcome]string{
		contracts.OutcomeFound:     "found: one venue is the place",
		contracts.OutcomeNotFound:  "not found: the provider answered, and no venue is the place",
		contracts.OutcomeAmbiguous: "ambiguous: several venues could be the place", contracts.OutcomeError: "the provider failed",
	}[l.Result.Outcome]
	if words == "" {
		words = strings.ToLower(string(l.Result.Status))
	}
	if l.State == "pending" {
		words += "; it is looked up again"
	}
	return words
}

// evidence is the comparison of a place with the best venue.
type evidence struct {
	Base     float64       `json:"base"`
	Features []observation `json:"features"`
	Model    string        `json:"model"`
}

// observation is one piece of evidence for or against a venue.
type observation struct {
	Contribution float64 `json:"contribution"`
	Name         string  `json:"name"`
	Value        float64 `json:"value"`
}

// Words returns the name of the observation in words.
func (o observation) Words() string {
	feature, value, _ := strings.Cut(o.Name, ".")
	return strings.ReplaceAll(feature+" "+value, "_", " ")
}

// For reports whether the observation is in favour of the venue.
func (o observation) For() bool { return o.Contribution >= 0 }

// Weight returns the weight of the observation, for or against the venue.
func (o observation) Weight() string {
	side := "for it"
	if !o.For() {
		side = "against it"
	}
	return fmt.Sprintf("%.2f %s", math.Abs(o.Contribution), side)
}

// Evidence returns the matcher's evidence, nil for evidence of another form.
func (l lookup) Evidence() *evidence {
	var e evidence
	if l.Result == nil || json.Unmarshal(l.Result.Evidence, &e) != nil {
		return nil
	}
	return &e
}

// Score returns the confidence in the venue.
func (l lookup) Score() string { return fmt.Sprintf("%.3f", l.Result.Score) }

// placePage is the data of the screen.
type placePage struct {
	ID      string
	Lookups []lookup `json:"lookups"`
}

// addPlaces adds the screen of a place. A page costs one request to the enricher.
func (c *Console) addPlaces() {
	c.page("GET /places", func(r *request) error {
		p := placePage{ID: r.URL.Query().Get("id")}
		if p.ID == "" {
			return r.render("places", "Places", p)
		}
		r.Command = operate.Shell("expediter", "places", p.ID)
		if err := r.ask(r.Context(), "enricher.v1.place", map[string]string{"placeId": p.ID}, &p); err != nil {
			return err
		}
		return r.render("places", "Place "+p.ID, p)
	})
}
