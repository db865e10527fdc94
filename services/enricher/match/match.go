package match

// Outcome is what was decided.
type Outcome string

// The outcomes. A fourth, ERROR, belongs to the caller whose provider did not answer.
const (
	// Found means that one candidate is the place.
	Found Outcome = "FOUND"
	// NotFound means that no candidate is the place.
	NotFound Outcome = "NOT_FOUND"
	// Ambiguous means that a candidate may be the place, or that two are about as likely: a person, or more evidence,
	// has to tell.
	Ambiguous Outcome = "AMBIGUOUS"
)

// The thresholds of a decision.
const (
	// FoundScore is the least score of a candidate that is found.
	FoundScore = 0.8
	// NotFoundScore is the score below which a candidate is not the place.
	NotFoundScore = 0.2
	// FoundMargin is the least margin to the second candidate: odds of four to one.
	FoundMargin = 0.6
)

// Decision is the outcome of looking for a place among candidates.
type Decision struct {
	// Outcome is what was decided.
	Outcome Outcome `json:"outcome"`
	// Index is the best candidate, or -1 when there was none. It is set whatever the outcome.
	Index int `json:"index"`
	// Rival is the candidate that is the next likely and not evidently the same venue, or -1.
	Rival int `json:"rival"`
	// Score is that of the best candidate.
	Score float64 `json:"score"`
	// Margin is how far the best is ahead of the rival, in [0,1]: the difference of their odds over the sum. Zero means
	// equally likely; 1 means without a rival.
	Margin float64 `json:"margin"`
	// Evidence is that of the best candidate.
	Evidence Evidence `json:"evidence"`
}

// Compare returns the evidence that two places are one venue. It is symmetric and deterministic.
func Compare(a, b Place) Evidence { return Prepare(a).Compare(Prepare(b)) }

// Compare returns the evidence that two places are one venue. It is symmetric.
func (p *Prepared) Compare(q *Prepared) Evidence {
	v := observe(p, q)
	return v.explain()
}

// Score returns the score that Compare gives, without the evidence. It does not allocate.
func (p *Prepared) Score(q *Prepared) float64 {
	v := observe(p, q)
	return v.score()
}

// Best looks for a place among candidates. See Prepared.Best.
func Best(query Place, candidates []Place) Decision {
	prepared := make([]*Prepared, len(candidates))
	for i, c := range candidates {
		prepared[i] = Prepare(c)
	}
	return Prepare(query).Best(prepared)
}
