package console

import (
	"net/http"
	"time"
)

const (
	doctorPath = "/doctor"
	doctorTime = 30 * time.Second // bounds one run of Config.Doctor
)

// Severity is the severity of a finding.
type Severity string

const (
	// Error means that something does not work, or will not when it is needed.
	Error Severity = "error"
	// Warning means that something deserves a look.
	Warning Severity = "warning"
	// Skipped means that something could not be checked.
	Skipped Severity = "skipped"
)

// Finding is one fault of a deployment.
type Finding struct {
	// ID names the kind of finding, such as "stream.max_age".
	ID string `json:"id"`

	// Severity is the severity of the fault.
	Severity Severity `json:"severity"`

	// Of names the object of the fault, such as "stream EVENTS".
	Of string `json:"of"`

	// Problem describes the fault.
	Problem string `json:"problem"`

	// Cure is a command line that fixes the fault.
	Cure string `json:"cure"`
}

type findings struct {
	Class, Title string
	Findings     []Finding
}

type doctorView struct {
	Groups []findings
	Ran    bool
	Wrong  bool
}

// addDoctor adds the page of the findings of Config.Doctor. The page calls Doctor on request, for one reader at a time.
func (c *Console) addDoctor() {
	turn := make(chan struct{}, 1)
	c.pageWithin("GET "+doctorPath, []string{"run"}, doctorTime, func(r *request) error {
		r.Command = "expediter doctor --read-only"
		if r.URL.Query().Get("run") == "" {
			return r.render("doctor", "Doctor", doctorView{})
		}
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		default:
			return fail(http.StatusConflict, "Doctor is looking for somebody else. Try again in %s.", span(doctorTime))
		}
		all, err := c.cfg.Doctor(r.Context())
		if err != nil {
			return fail(http.StatusServiceUnavailable, "Doctor came to no end: %v. Try again, or run %s.", err, r.Command)
		}
		v, of := doctorView{Ran: true}, map[Severity][]Finding{}
		for _, f := range all {
			of[f.Severity] = append(of[f.Severity], f)
		}
		v.Wrong = len(of[Error])+len(of[Warning]) > 0
		v.Groups = []findings{{"bad", "Errors", of[Error]}, {"warn", "Warnings", of[Warning]}, {"soft", "Not looked at", of[Skipped]}}
		return r.render("doctor", "Doctor", v)
	})
}
