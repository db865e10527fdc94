package wolt

import "errors"

// ErrCircuitOpen is returned, inside an unavailable provider.Error, when no call was
// made because too many failed in a row.
var ErrCircuitOpen = errors.New("the circuit breaker is open after too many failed calls in a row")

// errNoContent is returned when the answer is a page that says it has nothing to
// show. That is also what a client gets whose headers are wrong, or who is taken
// for a robot, so it says nothing about the place.
var errNoContent = errors.New("the answer is a no-content page, which is also given to clients that are not trusted")

// errSearchTimeout is the cause of the end of a search's own time.
var errSearchTimeout = errors.New("the time for one search is over")
