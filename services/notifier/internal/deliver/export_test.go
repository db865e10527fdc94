package deliver

// Passing has the expander call another function at each point.
func (e *Expander) Passing(passed func(point string)) { e.passed = passed }
